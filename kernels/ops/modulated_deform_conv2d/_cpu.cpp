// The columns of modulated_deform_conv2d on the CPU and their gradients; the formula stands in
// __init__.py, the products with the weights in _cpu.py.
//
// A task is a run of pixels of one tap forward, and a block of channels backward. So no two tasks
// of the backward pass share a number of grad_image: no atomics, and bitwise the same result for
// any number of threads. What the blocks add to the gradients of offset and mask is handed out
// block by block, for the caller to sum.

#if !defined(TARGET)

#include <algorithm>
#include <vector>

#include "common/cpu/runtime.h"

namespace turbo_physai {
namespace {

constexpr int kRun = 64;             // pixels located together
constexpr int64_t kMaxBlock = 1024;  // channels in a task of the backward pass

// One image and a run of its output pixels, `first` to `first + pixels` in the order of rows.
template <typename T>
struct Problem {
  const T* image;   // (height, width, channels)
  const T* offset;  // (deform groups, taps, 2, plane), as (y, x)
  const T* mask;    // (deform groups, taps, plane), or null for ones
  int64_t channels, height, width, out_width, plane, kernel_h, kernel_w, stride_h, stride_w, pad_h,
      pad_w, dilation_h, dilation_w, groups, deform_groups, block, first, pixels, threads;

  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t group_channels() const { return channels / groups; }
  int64_t deform_channels() const { return channels / deform_groups; }
};

// Channels side by side in the image and in the columns, (groups, pixels, taps, group channels).
struct Piece {
  int64_t channel, count, column;  // column: where the first one stands for pixel 0 and tap 0
};

template <typename T>
std::vector<Piece> pieces(const Problem<T>& op, int64_t begin, int64_t end) {
  std::vector<Piece> all;
  const int64_t size = op.group_channels();
  for (int64_t channel = begin; channel < end;) {
    const int64_t group = channel / size, stop = std::min(end, (group + 1) * size);
    const int64_t column = group * op.pixels * op.taps() * size + channel % size;
    all.push_back({channel, stop - channel, column});
    channel = stop;
  }
  return all;
}

}  // namespace
}  // namespace turbo_physai

#define TARGET_INCLUDE "ops/modulated_deform_conv2d/_cpu.cpp"
#include "common/cpu/foreach_target.h"
#define TARGET_LAST
#endif

namespace turbo_physai {
namespace TARGET {
namespace {

#include "common/cpu/simd.h"

// Samples of one tap and deform group at consecutive pixels, in arrays so that they are located a
// vector at a time. Corners stand in the order (y0, x0), (y0, x1), (y1, x0), (y1, x1).
template <typename T>
struct Run {
  int64_t first;  // counted from the problem's first pixel
  int count;
  T base_y[kRun], base_x[kRun];  // in the image, of the tap at the top left
  T x[kRun], y[kRun];            // in pixels; once located, within the pixel
  T weight[kRun];                // the mask; 0 for a sample that touches no pixel
  T factor[4][kRun];             // bilinear
  int32_t key[4][kRun];          // the corner's pixel; -1 outside
  T scale[4][kRun];              // weight times factor; 0 outside
  T dot[kRun][4];                // of the corner's channels with the incoming gradient

  INLINE void start(const Problem<T>& op, int64_t from) {
    first = from;
    count = static_cast<int>(std::min<int64_t>(kRun, op.pixels - from));
    int64_t line = (op.first + from) / op.out_width, column = (op.first + from) % op.out_width;
    for (int i = 0; i < count; ++i) {
      base_y[i] = T(line * op.stride_h - op.pad_h);
      base_x[i] = T(column * op.stride_w - op.pad_w);
      if (++column == op.out_width) column = 0, ++line;
    }
  }

  INLINE void locate(const Problem<T>& op, int64_t group, int64_t tap) {
    const int64_t at = group * op.taps() + tap, pixel = op.first + first;
    const T *offset_y = op.offset + 2 * at * op.plane + pixel, *offset_x = offset_y + op.plane;
    const T* mask = op.mask == nullptr ? nullptr : op.mask + at * op.plane + pixel;
    const T tap_y = T(tap / op.kernel_w * op.dilation_h);
    const T tap_x = T(tap % op.kernel_w * op.dilation_w);
    for (int i = 0; i < count; ++i) {
      y[i] = base_y[i] + tap_y + offset_y[i];
      x[i] = base_x[i] + tap_x + offset_x[i];
      weight[i] = mask == nullptr ? T(1) : mask[i];
    }
    const int32_t width = static_cast<int32_t>(op.width), height = static_cast<int32_t>(op.height);
    for (int i = 0; i < count; ++i) {
      // False for NaN. A sample that touches no pixel goes on as one at (0, 0) with no corner.
      const bool touches = (x[i] > -1) & (y[i] > -1) & (x[i] < T(width)) & (y[i] < T(height));
      const T px = touches ? x[i] : T(0), py = touches ? y[i] : T(0);
      int32_t x0 = static_cast<int32_t>(px), y0 = static_cast<int32_t>(py);
      x0 -= px < T(x0);  // the conversion rounds towards zero
      y0 -= py < T(y0);
      const T fx = px - T(x0), fy = py - T(y0);
      x[i] = fx;
      y[i] = fy;
      weight[i] = touches ? weight[i] : T(0);
      factor[0][i] = (1 - fy) * (1 - fx);
      factor[1][i] = (1 - fy) * fx;
      factor[2][i] = fy * (1 - fx);
      factor[3][i] = fy * fx;
      const bool left = touches & (x0 >= 0), right = touches & (x0 + 1 < width);
      const bool top = y0 >= 0, bottom = y0 + 1 < height;
      const int32_t corner = y0 * width + x0;
      key[0][i] = (top & left) ? corner : -1;
      key[1][i] = (top & right) ? corner + 1 : -1;
      key[2][i] = (bottom & left) ? corner + width : -1;
      key[3][i] = (bottom & right) ? corner + width + 1 : -1;
      for (int k = 0; k < 4; ++k) scale[k][i] = key[k][i] < 0 ? T(0) : weight[i] * factor[k][i];
    }
  }
};

// A sample's corners, at the first channel of a piece. Outside is a row of zeros, not a weight of
// zero: that times an infinite pixel would not be zero.
template <typename T>
struct Corners {
  const T* row[4];
  T scale[4];

  INLINE Corners(const Run<T>& run, int i, const Problem<T>& op, int64_t channel, const T* zeros) {
    for (int k = 0; k < 4; ++k) {
      const int64_t key = run.key[k][i];
      row[k] = key < 0 ? zeros : op.image + key * op.channels + channel;
      scale[k] = run.scale[k][i];
    }
  }

  template <typename V>
  INLINE V sample(int64_t at) const {
    return (scale[0] * load<V>(row[0] + at) + scale[1] * load<V>(row[1] + at)) +
           (scale[2] * load<V>(row[2] + at) + scale[3] * load<V>(row[3] + at));
  }
};

template <typename T, typename S>
INLINE void fill(S, int64_t d, const Corners<T>& corners, T* column) {
  using V = Vec<T, S::kVectorLanes>;
  for (int k = 0; k < S::kVectors; ++k) {
    const int64_t at = d + k * S::kVectorLanes;
    store(column + at, corners.template sample<V>(at));
  }
}

template <typename T>
void columns(const Problem<T>& op, T* out) {
  const int64_t runs = (op.pixels + kRun - 1) / kRun, taps = op.taps();
  const int64_t size = op.deform_channels();
  const std::vector<T> zeros(size);
  parallel(op.deform_groups * runs * taps, op.threads, [&](Tasks& tasks) {
    Run<T> run;
    for (int64_t task; tasks.next(task);) {
      const int64_t group = task / taps / runs, tap = task % taps;
      run.start(op, task / taps % runs * kRun);
      run.locate(op, group, tap);
      for (const Piece& piece : pieces(op, group * size, (group + 1) * size)) {
        const int64_t even = piece.count / 4 * 4;
        for (int i = 0; i < run.count; ++i) {
          const Corners<T> corners(run, i, op, piece.channel, zeros.data());
          T* column = out + piece.column + ((run.first + i) * taps + tap) * op.group_channels();
          for_each_strip<T>(even, [&](auto strip, int64_t d) INLINE_LAMBDA {
            fill(strip, d, corners, column);
          });
          for (int64_t d = even; d < piece.count; ++d) column[d] = corners.template sample<T>(d);
        }
      }
    }
  });
}

// The gradients of a sample's corners get their shares (with `add`), and the column's gradient gives
// way to the column. Returns the dot products of the column's gradient with the corners.
template <bool add, typename T, typename S>
INLINE Vec<T, 4> scatter(S, int64_t d, const Corners<T>& corners, T* const (&grad_rows)[4],
                         T* column) {
  constexpr int N = S::kVectorLanes;
  using V = Vec<T, N>;
  V dot[4] = {};
  for (int k = 0; k < S::kVectors; ++k) {
    const int64_t at = d + k * N;
    const V grad = load<V>(column + at);
    V sample{};
    for (int corner = 0; corner < 4; ++corner) {
      const V row = load<V>(corners.row[corner] + at);
      dot[corner] += grad * row;
      sample += corners.scale[corner] * row;
      if constexpr (add) {
        T* to = grad_rows[corner] + at;
        store(to, load<V>(to) + corners.scale[corner] * grad);
      }
    }
    store(column + at, sample);
  }
  return sums<T, N>(dot);
}

template <bool add, typename T>
INLINE void scatter_one(int64_t d, const Corners<T>& corners, T* const (&grad_rows)[4], T* column,
                        T (&dot)[4]) {
  const T grad = column[d];
  column[d] = corners.template sample<T>(d);
  for (int corner = 0; corner < 4; ++corner) {
    dot[corner] += grad * corners.row[corner][d];
    if constexpr (add) grad_rows[corner][d] += corners.scale[corner] * grad;
  }
}

// One sample, the channels of a piece; adds to run.dot.
template <bool add, typename T>
INLINE void scatter_piece(const Problem<T>& op, Run<T>& run, int i, const Piece& piece,
                          intptr_t to_grad, const T* zeros, T* outside, T* column) {
  const Corners<T> corners(run, i, op, piece.channel, zeros);
  T* grad_rows[4];
  for (int k = 0; k < 4; ++k) {
    grad_rows[k] = run.key[k][i] < 0 ? outside : moved(corners.row[k], to_grad);
  }
  Vec<T, 4> dot = load<Vec<T, 4>>(run.dot[i]);
  const int64_t even = piece.count / 4 * 4;
  for_each_strip<T>(even, [&](auto strip, int64_t d) INLINE_LAMBDA {
    dot += scatter<add>(strip, d, corners, grad_rows, column);
  });
  store(run.dot[i], dot);
  for (int64_t d = even; d < piece.count; ++d) {
    scatter_one<add>(d, corners, grad_rows, column, run.dot[i]);
  }
}

// A block's share of the gradients of (y, x) and mask.
template <typename T>
INLINE void finish(const Problem<T>& op, const Run<T>& run, T* share) {
  T *grad_y = share, *grad_x = share + op.pixels, *grad_mask = share + 2 * op.pixels;
  for (int i = 0; i < run.count; ++i) {
    const T(&dot)[4] = run.dot[i];
    const T fx = run.x[i], fy = run.y[i];
    grad_y[i] = run.weight[i] * ((1 - fx) * (dot[2] - dot[0]) + fx * (dot[3] - dot[1]));
    grad_x[i] = run.weight[i] * ((1 - fy) * (dot[1] - dot[0]) + fy * (dot[3] - dot[2]));
    grad_mask[i] = run.factor[0][i] * dot[0] + run.factor[1][i] * dot[1] +
                   run.factor[2][i] * dot[2] + run.factor[3][i] * dot[3];
  }
}

// `inout` holds the gradients of the columns, then the columns. `shares` is (blocks of op.block
// channels in a deform group, deform groups, taps, 3, pixels).
template <typename T>
void columns_backward(const Problem<T>& op, T* inout, T* grad_image, T* shares) {
  const int64_t size = op.deform_channels(), taps = op.taps();
  const int64_t blocks = (size + op.block - 1) / op.block;
  const intptr_t to_grad = distance(op.image, static_cast<const T*>(grad_image));
  alignas(64) const T zeros[kMaxBlock] = {};
  parallel(op.deform_groups * blocks, op.threads, [&](Tasks& tasks) {
    alignas(64) T outside[kMaxBlock] = {};  // takes what the corners outside would get
    Run<T> run;
    for (int64_t task; tasks.next(task);) {
      const int64_t group = task / blocks, block = task % blocks;
      const int64_t begin = group * size + block * op.block;
      const auto parts = pieces(op, begin, std::min(begin + op.block, (group + 1) * size));
      for (int64_t first = 0; first < op.pixels; first += kRun) {
        run.start(op, first);
        for (int64_t tap = 0; tap < taps; ++tap) {
          run.locate(op, group, tap);
          std::memset(run.dot, 0, sizeof run.dot);
          for (const Piece& piece : parts) {
            for (int i = 0; i < run.count; ++i) {
              T* column = inout + piece.column + ((first + i) * taps + tap) * op.group_channels();
              if (grad_image) {
                scatter_piece<true>(op, run, i, piece, to_grad, zeros, outside, column);
              } else {
                scatter_piece<false>(op, run, i, piece, to_grad, zeros, outside, column);
              }
            }
          }
          finish(op, run,
                 shares + ((block * op.deform_groups + group) * taps + tap) * 3 * op.pixels + first);
        }
      }
    }
  });
}

}  // namespace
}  // namespace TARGET
}  // namespace turbo_physai

#if defined(TARGET_LAST)

using namespace turbo_physai;

// `out` and `shares` may hold anything on entry; grad_image is added to, where it is not null.
#define SIZES                                                                                    \
  int64_t channels, int64_t height, int64_t width, int64_t out_width, int64_t plane,             \
      int64_t kernel_h, int64_t kernel_w, int64_t stride_h, int64_t stride_w, int64_t pad_h,     \
      int64_t pad_w, int64_t dilation_h, int64_t dilation_w, int64_t groups,                     \
      int64_t deform_groups, int64_t block, int64_t first, int64_t pixels, int64_t threads
#define PROBLEM(T)                                                                               \
  const Problem<T> op{image,      offset,     mask,     channels, height,  width,                \
                      out_width,  plane,      kernel_h, kernel_w, stride_h, stride_w,            \
                      pad_h,      pad_w,      dilation_h, dilation_w, groups, deform_groups,     \
                      block,      first,      pixels,   threads};

#define DEFINE(T, SUFFIX)                                                                        \
  EXPORT void modulated_deform_conv2d_columns_##SUFFIX(const T* image, const T* offset,          \
                                                       const T* mask, T* out, SIZES) {           \
    PROBLEM(T)                                                                                   \
    ON_BEST_ISA(columns, op, out)                                                                \
  }                                                                                              \
  EXPORT void modulated_deform_conv2d_columns_backward_##SUFFIX(                                 \
      const T* image, const T* offset, const T* mask, T* inout, T* grad_image, T* shares,        \
      SIZES) {                                                                                   \
    PROBLEM(T)                                                                                   \
    ON_BEST_ISA(columns_backward, op, inout, grad_image, shares)                                 \
  }

DEFINE(float, f32)
DEFINE(double, f64)

#endif
