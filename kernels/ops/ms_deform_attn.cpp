// ms_deform_attn on the CPU, forward and backward; the formula stands in ms_deform_attn.py.
//
// A task is a run of queries of one (batch item, head) forward, and one (batch item, head, level)
// backward. So a core works on one slice of value at a time, and no two tasks of the backward pass
// share a row of grad_value: no atomics, and bitwise the same result for any number of threads.

#if !defined(TARGET)

#include <algorithm>
#include <utility>
#include <vector>

#include "_cpu.h"

namespace turbo_physai {

constexpr int kMaxDim = 256;
constexpr int kBlock = 64;         // samples located together
constexpr int64_t kQueries = 256;  // queries in a task of the forward pass

// Contiguous arrays, shaped as ms_deform_attn.py says. A bag is one (batch item, query, head).
template <typename T>
struct Problem {
  const T* value;
  const int64_t* shapes;
  const int64_t* starts;
  const T* locations;
  const T* weights;
  int64_t batch, keys, heads, dim, queries, levels, points, threads;

  int64_t height(int64_t level) const { return shapes[2 * level]; }
  int64_t width(int64_t level) const { return shapes[2 * level + 1]; }
  int64_t stride() const { return heads * dim; }
  int64_t row(int64_t item, int64_t key, int64_t head) const {
    return ((item * keys + key) * heads + head) * dim;
  }
  int64_t bag(int64_t item, int64_t query, int64_t head) const {
    return (item * queries + query) * heads + head;
  }
};

template <typename T>
struct Gradients {
  const T* out;
  T* value;
  T* locations;
  T* weights;
};

// Read for the corners outside: a row of its own, since zero times an infinite pixel is not zero.
template <typename T>
alignas(64) constexpr T kZeros[kMaxDim] = {};

template <typename T>
bool levels_overlap(const Problem<T>& op) {
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (int64_t l = 0; l < op.levels; ++l) {
    spans.emplace_back(op.starts[l], op.starts[l] + op.height(l) * op.width(l));
  }
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i].first < spans[i - 1].second) return true;
  }
  return false;
}

}  // namespace turbo_physai

#define TARGET_INCLUDE "ms_deform_attn.cpp"
#include "_foreach_target.h"
#define TARGET_LAST
#endif

namespace turbo_physai {
namespace TARGET {

#include "_simd.h"

// The levels of consecutive samples: one entry a sample.
struct Levels {
  std::vector<int32_t> width, height, start;

  template <typename T>
  void add(const Problem<T>& op, int64_t level, int64_t start_row, int64_t samples) {
    width.insert(width.end(), samples, op.width(level));
    height.insert(height.end(), samples, op.height(level));
    start.insert(start.end(), samples, start_row);
  }
};

// location * size - 0.5, rounded as torch's grid_sample rounds it on a CPU, with its grid of -1 to 1
// and one fused multiply-add. A sample on the line between two pixels, where those of a regular grid
// all lie, has a gradient to each side, and who replaces grid_sample must take the same one.
template <typename T>
INLINE T pixel(T location, int32_t size) {
  const T grid = 2 * location - 1;
  return (grid + 1) * (T(size) / 2) - T(0.5);
}

// Samples of one (batch item, head), in arrays so that they are located a vector at a time.
// Corners stand in the order (y0, x0), (y0, x1), (y1, x0), (y1, x1).
template <typename T>
struct Block {
  int count;
  T x[kBlock], y[kBlock];  // in pixels; once located, within the pixel
  T weight[kBlock];
  T factor[4][kBlock];      // bilinear
  int32_t key[4][kBlock];   // the corner's row; -1 outside
  const T* row[kBlock][4];  // the same as a pointer; kZeros outside
  T scale[kBlock][4];       // weight times factor; 0 outside
  T dot[kBlock][4];         // of the corner's row with the incoming gradient

  // Reads `samples` samples from each of `bags` bags, `pitch` samples from one bag to the next.
  INLINE void read(const T* locations, const T* weights, int64_t pitch, int bags, int samples,
                   const Levels& levels, int64_t first) {
    const int32_t *width = &levels.width[first], *height = &levels.height[first];
    count = bags * samples;
    for (int bag = 0, i = 0; bag < bags; ++bag) {
      // The heads' samples alternate in memory, and the hardware does not see through that.
      prefetch<false>(locations + 2 * bags * pitch, 2 * samples);
      prefetch<false>(weights + bags * pitch, samples);
      for (int sample = 0; sample < samples; ++sample, ++i) {
        x[i] = pixel(locations[2 * sample], width[i]);
        y[i] = pixel(locations[2 * sample + 1], height[i]);
        weight[i] = weights[sample];
      }
      locations += 2 * pitch;
      weights += pitch;
    }
  }

  INLINE void locate(const Levels& levels, int64_t first) {
    const int32_t *widths = &levels.width[first], *heights = &levels.height[first];
    const int32_t* starts = &levels.start[first];
    for (int i = 0; i < count; ++i) {
      const int32_t width = widths[i], height = heights[i];
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
      const int32_t corner = starts[i] + y0 * width + x0;
      key[0][i] = (top & left) ? corner : -1;
      key[1][i] = (top & right) ? corner + 1 : -1;
      key[2][i] = (bottom & left) ? corner + width : -1;
      key[3][i] = (bottom & right) ? corner + width + 1 : -1;
    }
  }

  // Points the rows into `value` and fetches them early, and their gradients `to_grad` bytes on.
  template <bool backward>
  INLINE void aim(const T* value, int64_t stride, int64_t dim, intptr_t to_grad) {
    for (int i = 0; i < count; ++i) {
      for (int corner = 0; corner < 4; ++corner) {
        const int64_t k = key[corner][i];
        row[i][corner] = k < 0 ? kZeros<T> : value + k * stride;
        scale[i][corner] = k < 0 ? 0 : weight[i] * factor[corner][i];
        prefetch<false>(row[i][corner], dim);
        if (backward) prefetch<true>(moved(row[i][corner], to_grad), dim);
      }
    }
  }
};

template <typename T, typename S>
INLINE void gather(S, int64_t d, const Block<T>& b, int begin, int end, bool first, T* out) {
  constexpr int N = S::kVectorLanes, kVectors = S::kVectors;
  using V = Vec<T, N>;
  V even[kVectors], odd[kVectors];  // two chains of additions run at twice the speed of one
  for (int k = 0; k < kVectors; ++k) {
    even[k] = first ? V{} : load<V>(out + d + k * N);
    odd[k] = V{};
  }
  for (int i = begin; i < end; ++i) {
    for (int k = 0; k < kVectors; ++k) {
      const int64_t at = d + k * N;
      even[k] += b.scale[i][0] * load<V>(b.row[i][0] + at);
      odd[k] += b.scale[i][1] * load<V>(b.row[i][1] + at);
      even[k] += b.scale[i][2] * load<V>(b.row[i][2] + at);
      odd[k] += b.scale[i][3] * load<V>(b.row[i][3] + at);
    }
  }
  for (int k = 0; k < kVectors; ++k) store(out + d + k * N, even[k] + odd[k]);
}

template <typename T>
void forward(const Problem<T>& op, T* out) {
  const int64_t samples = op.levels * op.points;
  const int64_t at_once = std::max<int64_t>(1, kBlock / samples);
  Levels levels;
  for (int64_t bag = 0; bag < at_once; ++bag) {
    for (int64_t l = 0; l < op.levels; ++l) levels.add(op, l, op.starts[l], op.points);
  }
  const int64_t runs = (op.queries + kQueries - 1) / kQueries;
  advise_huge_pages(out, op.batch * op.queries * op.stride() * sizeof(T));

  parallel(op.batch * op.heads * runs, op.threads, [&](Tasks& tasks) {
    Block<T> b;
    for (int64_t task; tasks.next(task);) {
      const int64_t item = task / runs / op.heads, head = task / runs % op.heads;
      const T* value = op.value + op.row(item, 0, head);
      const int64_t begin = task % runs * kQueries, end = std::min(op.queries, begin + kQueries);
      for (int64_t query = begin; query < end; query += at_once) {
        const int bags = std::min(at_once, end - query);
        const int64_t bag = op.bag(item, query, head);
        for (int64_t first = 0; first < samples; first += kBlock) {
          const int count = std::min<int64_t>(kBlock, samples - first);
          const int64_t sample = bag * samples + first;
          b.read(op.locations + 2 * sample, op.weights + sample, op.heads * samples, bags, count,
                 levels, first);
          b.locate(levels, first);
          b.template aim<false>(value, op.stride(), op.dim, 0);
          for (int i = 0; i < bags; ++i) {
            prefetch<true>(out + (bag + i * op.heads) * op.dim, op.dim);
          }
          for (int i = 0; i < bags; ++i) {
            for_each_strip<T>(op.dim, [&](auto strip, int64_t d) INLINE_LAMBDA {
              gather(strip, d, b, i * count, (i + 1) * count, first == 0,
                     out + (bag + i * op.heads) * op.dim);
            });
          }
        }
      }
    }
  });
}

// Adds to the gradients of a sample's corners; returns the corners' dot products with `grad`.
template <typename T, typename S>
INLINE Vec<T, 4> scatter(S, int64_t d, const T* const (&rows)[4], T* const (&grad_rows)[4],
                         const T (&scale)[4], const T* grad) {
  constexpr int N = S::kVectorLanes, kVectors = S::kVectors;
  using V = Vec<T, N>;
  V dot[4] = {};
  for (int corner = 0; corner < 4; ++corner) {
    for (int k = 0; k < kVectors; ++k) {
      const int64_t at = d + k * N;
      const V g = load<V>(grad + at);
      dot[corner] += g * load<V>(rows[corner] + at);
      store(grad_rows[corner] + at, load<V>(grad_rows[corner] + at) + scale[corner] * g);
    }
  }
  return sums<T, N>(dot);
}

// The gradients of weight and location of sample i of the block, sample `at` of all.
template <typename T>
INLINE void finish(const Block<T>& b, int i, T width, T height, const Gradients<T>& grads,
                   int64_t at) {
  const T(&dot)[4] = b.dot[i];
  const T fx = b.x[i], fy = b.y[i];
  const T along_x = (1 - fy) * (dot[1] - dot[0]) + fy * (dot[3] - dot[2]);
  const T along_y = (1 - fx) * (dot[2] - dot[0]) + fx * (dot[3] - dot[1]);
  grads.weights[at] = b.factor[0][i] * dot[0] + b.factor[1][i] * dot[1] +
                      b.factor[2][i] * dot[2] + b.factor[3][i] * dot[3];
  grads.locations[2 * at] = b.weight[i] * width * along_x;
  grads.locations[2 * at + 1] = b.weight[i] * height * along_y;
}

template <typename T>
void backward_level(const Problem<T>& op, const Gradients<T>& grads, int64_t item, int64_t head,
                    int64_t level) {
  const T* value = op.value + op.row(item, op.starts[level], head);
  const intptr_t to_grad = distance(op.value, grads.value);
  const int64_t pitch = op.heads * op.levels * op.points;
  const int64_t at_once = std::max<int64_t>(1, kBlock / op.points);
  Levels levels;
  levels.add(op, level, 0, kBlock);
  alignas(64) T outside[kMaxDim] = {};  // takes what the corners outside would get
  Block<T> b;
  for (int64_t query = 0; query < op.queries; query += at_once) {
    const int bags = std::min(at_once, op.queries - query);
    const int64_t bag = op.bag(item, query, head);
    for (int64_t first = 0; first < op.points; first += kBlock) {
      const int count = std::min<int64_t>(kBlock, op.points - first);
      const int64_t sample = (bag * op.levels + level) * op.points + first;
      b.read(op.locations + 2 * sample, op.weights + sample, pitch, bags, count, levels, 0);
      b.locate(levels, 0);
      for (int i = 0; i < bags; ++i) {
        prefetch<false>(grads.out + (bag + (bags + i) * op.heads) * op.dim, op.dim);
        prefetch<true>(grads.locations + 2 * (sample + i * pitch), 2 * count);
        prefetch<true>(grads.weights + sample + i * pitch, count);
      }
      b.template aim<true>(value, op.stride(), op.dim, to_grad);
      for (int j = 0, i = 0; j < bags; ++j) {
        const T* grad = grads.out + (bag + j * op.heads) * op.dim;
        for (; i < (j + 1) * count; ++i) {
          T* grad_rows[4];
          for (int corner = 0; corner < 4; ++corner) {
            const T* row = b.row[i][corner];
            grad_rows[corner] = row == kZeros<T> ? outside : moved(row, to_grad);
          }
          Vec<T, 4> dot = {};
          for_each_strip<T>(op.dim, [&](auto strip, int64_t d) INLINE_LAMBDA {
            dot += scatter(strip, d, b.row[i], grad_rows, b.scale[i], grad);
          });
          store(b.dot[i], dot);
        }
      }
      const T width = op.width(level), height = op.height(level);
      for (int j = 0, i = 0; j < bags; ++j) {
        for (int64_t at = sample + j * pitch; i < (j + 1) * count; ++i, ++at) {
          finish(b, i, width, height, grads, at);
        }
      }
    }
  }
}

template <typename T>
void backward(const Problem<T>& op, const Gradients<T>& grads) {
  const size_t bytes = op.batch * op.keys * op.stride() * sizeof(T);
  advise_huge_pages(grads.value, bytes);
  zero(grads.value, bytes, op.threads);
  const int64_t groups = levels_overlap(op) ? 1 : op.levels;
  parallel(op.batch * op.heads * groups, op.threads, [&](Tasks& tasks) {
    for (int64_t task; tasks.next(task);) {
      const int64_t item = task / groups / op.heads, head = task / groups % op.heads;
      for (int64_t l = task % groups; l < op.levels; l += groups) {
        backward_level(op, grads, item, head, l);
      }
    }
  });
}

}  // namespace TARGET
}  // namespace turbo_physai

#if defined(TARGET_LAST)

using namespace turbo_physai;

// `out` may hold anything on entry, and so may the gradients.
#define DEFINE(T, SUFFIX)                                                                       \
  EXPORT void ms_deform_attn_forward_##SUFFIX(                                                  \
      const T* value, const int64_t* shapes, const int64_t* starts, const T* locations,         \
      const T* weights, T* out, int64_t batch, int64_t keys, int64_t heads, int64_t dim,        \
      int64_t queries, int64_t levels, int64_t points, int64_t threads) {                       \
    const Problem<T> op{value, shapes, starts, locations, weights, batch, keys,   \
                                      heads, dim, queries, levels, points, threads};            \
    ON_BEST_ISA(forward, op, out)                                                               \
  }                                                                                             \
  EXPORT void ms_deform_attn_backward_##SUFFIX(                                                 \
      const T* grad_out, const T* value, const int64_t* shapes, const int64_t* starts,          \
      const T* locations, const T* weights, T* grad_value, T* grad_locations, T* grad_weights,  \
      int64_t batch, int64_t keys, int64_t heads, int64_t dim, int64_t queries, int64_t levels, \
      int64_t points, int64_t threads) {                                                        \
    const Problem<T> op{value, shapes, starts, locations, weights, batch, keys,   \
                                      heads, dim, queries, levels, points, threads};            \
    const Gradients<T> grads{grad_out, grad_value, grad_locations, grad_weights}; \
    ON_BEST_ISA(backward, op, grads)                                                            \
  }

DEFINE(float, f32)
DEFINE(double, f64)

#endif
