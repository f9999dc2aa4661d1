// spatial_cross_attention on the CPU, forward and backward; the formula stands in __init__.py.

#include "common/cpu/attention.h"

using namespace turbo_physai;

// `out` may hold anything on entry, and so may the gradients; that of value is null where not wanted.
#define DEFINE(T, SUFFIX)                                                                         \
  EXPORT void spatial_cross_attention_forward_##SUFFIX(                                           \
      const T* value, const int64_t* shapes, const int64_t* starts, const T* offsets,             \
      const T* logits, const T* references, const uint8_t* visible, T* out, int64_t batch,        \
      int64_t cameras, int64_t keys, int64_t heads, int64_t dim, int64_t queries, int64_t levels, \
      int64_t points, int64_t near, int64_t first_item, int64_t threads) {                        \
    const Problem<T> op{value, {shapes, starts, levels}, offsets, logits, references, true,       \
                        batch, cameras, keys, heads, dim, queries, points, near, threads};        \
    const Sight<T> sight(op, visible, first_item != 0);                                           \
    ON_BEST_ISA(forward, op, sight, out)                                                          \
  }                                                                                               \
  EXPORT void spatial_cross_attention_backward_##SUFFIX(                                          \
      const T* grad_out, const T* value, const int64_t* shapes, const int64_t* starts,            \
      const T* offsets, const T* logits, const T* references, const uint8_t* visible,             \
      T* grad_value, T* grad_offsets, T* grad_logits, int64_t batch, int64_t cameras,             \
      int64_t keys, int64_t heads, int64_t dim, int64_t queries, int64_t levels, int64_t points,  \
      int64_t near, int64_t first_item, int64_t threads) {                                        \
    const Problem<T> op{value, {shapes, starts, levels}, offsets, logits, references, true,       \
                        batch, cameras, keys, heads, dim, queries, points, near, threads};        \
    const Sight<T> sight(op, visible, first_item != 0);                                           \
    const Gradients<T> grads{grad_out, grad_value, grad_offsets, grad_logits};                    \
    ON_BEST_ISA(backward, op, sight, grads)                                                       \
  }

DEFINE(float, f32)
DEFINE(double, f64)
