// ms_deform_attn on the CPU, forward and backward; the formula stands in __init__.py.
//
// A task is a run of queries of one (batch item, head) forward, and one (batch item, head, level)
// backward. So a core works on one slice of value at a time, and no two tasks of the backward pass
// share a row of grad_value: no atomics, and bitwise the same result for any number of threads.

#if !defined(TARGET)

#include "common/cpu/runtime.h"
#include "common/cpu/levels.h"

namespace turbo_physai {
namespace {

constexpr int64_t kQueries = 256;  // queries in a task of the forward pass

// Contiguous arrays, shaped as __init__.py says. A bag is one (batch item, query, head).
template <typename T>
struct Problem {
  const T* value;
  Pyramid maps;
  const T* locations;
  const T* weights;
  int64_t batch, keys, heads, dim, queries, points, threads;

  int64_t stride() const { return heads * dim; }
  int64_t row(int64_t item, int64_t key, int64_t head) const {
    return ((item * keys + key) * heads + head) * dim;
  }
  int64_t bag(int64_t item, int64_t query, int64_t head) const {
    return (item * queries + query) * heads + head;
  }
};

// Those that are not wanted are null.
template <typename T>
struct Gradients {
  const T* out;
  T* value;
  T* locations;
  T* weights;
};

}  // namespace
}  // namespace turbo_physai

#define TARGET_INCLUDE "ops/ms_deform_attn/_cpu.cpp"
#include "common/cpu/foreach_target.h"
#define TARGET_LAST
#endif

namespace turbo_physai {
namespace TARGET {
namespace {

#include "common/cpu/simd.h"
#include "common/cpu/sampling.h"

// Reads `samples` samples from each of `bags` bags, `pitch` samples from one bag to the next.
template <typename T>
INLINE void read(Block<T>& b, const T* locations, const T* weights, int64_t pitch, int bags,
                 int samples, const Levels& levels, int64_t first) {
  const int32_t *width = &levels.width[first], *height = &levels.height[first];
  b.count = bags * samples;
  for (int bag = 0, i = 0; bag < bags; ++bag) {
    // The heads' samples alternate in memory, and the hardware does not see through that.
    prefetch<false>(locations + 2 * bags * pitch, 2 * samples);
    prefetch<false>(weights + bags * pitch, samples);
    for (int sample = 0; sample < samples; ++sample, ++i) {
      b.x[i] = pixel(locations[2 * sample], width[i]);
      b.y[i] = pixel(locations[2 * sample + 1], height[i]);
      b.weight[i] = weights[sample];
    }
    locations += 2 * pitch;
    weights += pitch;
  }
}

template <typename T>
void forward(const Problem<T>& op, T* out) {
  const int64_t samples = op.maps.levels * op.points;
  const int64_t at_once = std::max<int64_t>(1, kBlock / samples);
  Levels levels;
  for (int64_t bag = 0; bag < at_once; ++bag) {
    for (int64_t l = 0; l < op.maps.levels; ++l) {
      levels.add(op.maps, l, op.maps.starts[l], op.points);
    }
  }
  levels.pad();
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
          read(b, op.locations + 2 * sample, op.weights + sample, op.heads * samples, bags, count,
                 levels, first);
          b.locate(levels, first, value, op.stride());
          b.fetch(op.dim);
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

template <bool of_value, typename T>
void backward_level(const Problem<T>& op, const Gradients<T>& grads, int64_t item, int64_t head,
                    int64_t level) {
  const T* value = op.value + op.row(item, op.maps.starts[level], head);
  const intptr_t to_grad = distance<T>(op.value, grads.value);
  const int64_t pitch = op.heads * op.maps.levels * op.points;
  const int64_t at_once = std::max<int64_t>(1, kBlock / op.points);
  Levels levels;
  levels.add(op.maps, level, 0, kBlock);
  levels.pad();
  alignas(64) T outside[kMaxDim] = {};  // takes what the corners outside would get
  Block<T> b;
  for (int64_t query = 0; query < op.queries; query += at_once) {
    const int bags = std::min(at_once, op.queries - query);
    const int64_t bag = op.bag(item, query, head);
    for (int64_t first = 0; first < op.points; first += kBlock) {
      const int count = std::min<int64_t>(kBlock, op.points - first);
      const int64_t sample = (bag * op.maps.levels + level) * op.points + first;
      read(b, op.locations + 2 * sample, op.weights + sample, pitch, bags, count, levels, 0);
      b.locate(levels, 0, value, op.stride());
      for (int i = 0; i < bags; ++i) {
        prefetch<false>(grads.out + (bag + (bags + i) * op.heads) * op.dim, op.dim);
        if (grads.locations) prefetch<true>(grads.locations + 2 * (sample + i * pitch), 2 * count);
        if (grads.weights) prefetch<true>(grads.weights + sample + i * pitch, count);
      }
      for (int j = 0; j < bags; ++j) {
        const T* grad = grads.out + (bag + j * op.heads) * op.dim;
        spread<of_value>(b, j * count, (j + 1) * count, op.dim, to_grad, grad, outside);
      }
      const T width = op.maps.width(level), height = op.maps.height(level);
      b.differentiate();
      for (int j = 0; j < bags && grads.locations; ++j) {
        T* grad_locations = grads.locations + 2 * (sample + j * pitch);
        for (int i = j * count; i < (j + 1) * count; ++i) {
          *grad_locations++ = width * b.slope[2 * i];
          *grad_locations++ = height * b.slope[2 * i + 1];
        }
      }
      for (int j = 0; j < bags && grads.weights; ++j) {
        std::memcpy(grads.weights + sample + j * pitch, b.sampled + j * count, count * sizeof(T));
      }
    }
  }
}

template <typename T>
void backward(const Problem<T>& op, const Gradients<T>& grads) {
  if (grads.value) {
    const size_t bytes = op.batch * op.keys * op.stride() * sizeof(T);
    advise_huge_pages(grads.value, bytes);
    zero(grads.value, bytes, op.threads);
  }
  const int64_t groups = op.maps.overlap() ? 1 : op.maps.levels;
  parallel(op.batch * op.heads * groups, op.threads, [&](Tasks& tasks) {
    for (int64_t task; tasks.next(task);) {
      const int64_t item = task / groups / op.heads, head = task / groups % op.heads;
      for (int64_t l = task % groups; l < op.maps.levels; l += groups) {
        if (grads.value) {
          backward_level<true>(op, grads, item, head, l);
        } else {
          backward_level<false>(op, grads, item, head, l);
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

// `out` may hold anything on entry, and so may the gradients; those not wanted are null.
#define DEFINE(T, SUFFIX)                                                                       \
  EXPORT void ms_deform_attn_forward_##SUFFIX(                                                  \
      const T* value, const int64_t* shapes, const int64_t* starts, const T* locations,         \
      const T* weights, T* out, int64_t batch, int64_t keys, int64_t heads, int64_t dim,        \
      int64_t queries, int64_t levels, int64_t points, int64_t threads) {                       \
    const Problem<T> op{value, {shapes, starts, levels}, locations, weights, batch, keys, heads, \
                        dim, queries, points, threads};                                         \
    ON_BEST_ISA(forward, op, out)                                                               \
  }                                                                                             \
  EXPORT void ms_deform_attn_backward_##SUFFIX(                                                 \
      const T* grad_out, const T* value, const int64_t* shapes, const int64_t* starts,          \
      const T* locations, const T* weights, T* grad_value, T* grad_locations, T* grad_weights,  \
      int64_t batch, int64_t keys, int64_t heads, int64_t dim, int64_t queries, int64_t levels, \
      int64_t points, int64_t threads) {                                                        \
    const Problem<T> op{value, {shapes, starts, levels}, locations, weights, batch, keys, heads, \
                        dim, queries, points, threads};                                         \
    const Gradients<T> grads{grad_out, grad_value, grad_locations, grad_weights};               \
    ON_BEST_ISA(backward, op, grads)                                                            \
  }

DEFINE(float, f32)
DEFINE(double, f64)

#endif
