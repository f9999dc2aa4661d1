// bev_pool on the CPU, forward and backward; the formula stands in __init__.py.
//
// A task is a run of intervals: each writes its own cell, or its own rows, so the result is bitwise
// the same for any number of threads.

#if !defined(TARGET)

#include <algorithm>

#include "common/cpu/runtime.h"

namespace turbo_physai {
namespace {

constexpr int64_t kIntervals = 64;  // in a task

// Contiguous arrays, shaped as __init__.py says; intervals lie in the rows, and in the grid.
template <typename T>
struct Problem {
  const T* x;
  const int64_t* geometry;
  const int64_t* lengths;
  const int64_t* starts;
  int64_t rows, channels, intervals, batch, depth, height, width, threads;

  int64_t cell(int64_t interval) const {
    const int64_t* at = geometry + 4 * starts[interval];  // (h, w, z, b)
    return ((at[3] * depth + at[2]) * height + at[0]) * width + at[1];
  }
};

}  // namespace
}  // namespace turbo_physai

#define TARGET_INCLUDE "ops/bev_pool/_cpu.cpp"
#include "common/cpu/foreach_target.h"
#define TARGET_LAST
#endif

namespace turbo_physai {
namespace TARGET {
namespace {

#include "common/cpu/simd.h"

template <typename T, typename Visit>
void for_each_interval(const Problem<T>& op, const Visit& visit) {
  parallel((op.intervals + kIntervals - 1) / kIntervals, op.threads, [&](Tasks& tasks) {
    for (int64_t task; tasks.next(task);) {
      const int64_t end = std::min(op.intervals, (task + 1) * kIntervals);
      for (int64_t i = task * kIntervals; i < end; ++i) visit(i);
    }
  });
}

// Adds up `count` rows from `row` on, channels [d, d + the strip's).
template <typename T, typename S>
INLINE void add_up(S, int64_t d, const T* row, int64_t count, int64_t channels, T* out) {
  using V = Vec<T, S::kVectorLanes>;
  V sums[S::kVectors] = {};
  for (int64_t i = 0; i < count; ++i, row += channels) {
    for (int k = 0; k < S::kVectors; ++k) sums[k] += load<V>(row + d + k * S::kVectorLanes);
  }
  for (int k = 0; k < S::kVectors; ++k) store(out + d + k * S::kVectorLanes, sums[k]);
}

template <typename T>
void forward(const Problem<T>& op, T* out) {
  const size_t bytes =
      op.batch * op.depth * op.height * op.width * op.channels * sizeof(T);
  advise_huge_pages(out, bytes);
  zero(out, bytes, op.threads);
  const int64_t even = op.channels / 4 * 4;
  for_each_interval(op, [&](int64_t i) INLINE_LAMBDA {
    const T* first = op.x + op.starts[i] * op.channels;
    T* sum = out + op.cell(i) * op.channels;
    for_each_strip<T>(even, [&](auto strip, int64_t d) INLINE_LAMBDA {
      add_up(strip, d, first, op.lengths[i], op.channels, sum);
    });
    for (int64_t d = even; d < op.channels; ++d) {
      T total = 0;
      for (int64_t r = 0; r < op.lengths[i]; ++r) total += first[r * op.channels + d];
      sum[d] = total;
    }
  });
}

template <typename T>
void backward(const Problem<T>& op, const T* grad_out, T* grad_x) {
  if (grad_x == nullptr) return;  // not wanted
  zero(grad_x, op.rows * op.channels * sizeof(T), op.threads);
  for_each_interval(op, [&](int64_t i) INLINE_LAMBDA {
    const T* grad = grad_out + op.cell(i) * op.channels;
    T* row = grad_x + op.starts[i] * op.channels;
    for (int64_t r = 0; r < op.lengths[i]; ++r, row += op.channels) {
      std::memcpy(row, grad, op.channels * sizeof(T));
    }
  });
}

}  // namespace
}  // namespace TARGET
}  // namespace turbo_physai

#if defined(TARGET_LAST)

using namespace turbo_physai;

// `out` may hold anything on entry, and so may grad_x.
#define SIZES                                                                               \
  int64_t rows, int64_t channels, int64_t intervals, int64_t batch, int64_t depth,          \
      int64_t height, int64_t width, int64_t threads
#define PROBLEM(T)                                                                          \
  const Problem<T> op{x,     geometry, lengths, starts, rows,  channels, intervals,         \
                      batch, depth,    height,  width,  threads};
#define DEFINE(T, SUFFIX)                                                                   \
  EXPORT void bev_pool_forward_##SUFFIX(const T* x, const int64_t* geometry,                \
                                        const int64_t* lengths, const int64_t* starts,      \
                                        T* out, SIZES) {                                    \
    PROBLEM(T)                                                                              \
    ON_BEST_ISA(forward, op, out)                                                           \
  }                                                                                         \
  EXPORT void bev_pool_backward_##SUFFIX(const T* grad_out, const T* x,                     \
                                         const int64_t* geometry, const int64_t* lengths,   \
                                         const int64_t* starts, T* grad_x, SIZES) {         \
    PROBLEM(T)                                                                              \
    ON_BEST_ISA(backward, op, grad_out, grad_x)                                             \
  }

DEFINE(float, f32)
DEFINE(double, f64)

#endif
