// What spatial_cross_attention and temporal_self_attention do on the CPU, forward and backward; the
// formulas stand in their __init__.py. Included once by each, with no include guard: it includes
// itself for every instruction set.
//
// Both sum samples of several sources, weighted by a softmax: cameras, which share a query's
// offsets and logits and see some of the queries, or entries of a queue, which have their own and
// see all.
// Softmax and locations are computed where they are used, for a run of queries at a time, and never
// stored. Tasks are cut as in ms_deform_attn/_cpu.cpp, with the same consequences.

#if !defined(TARGET)

#include <cmath>

#include "common/cpu/runtime.h"
#include "common/cpu/levels.h"

namespace turbo_physai {
namespace {

constexpr int64_t kQueries = 128;  // queries in a run

// Contiguous arrays. A bag is one (batch item, query, head, set of offsets and logits).
template <typename T>
struct Problem {
  const T* value;  // (B, N, S, H, D) of N sources
  Pyramid maps;
  const T* offsets;     // (B, Q, H, sets, L, P, 2)
  const T* logits;      // (B, Q, H, sets, L * P)
  const T* references;  // (N, B, Q, R, 2) of cameras, (B, N, Q, R, 2) of entries
  bool cameras;
  int64_t batch, sources, keys, heads, dim, queries, points, near /* R */, threads;

  int64_t sets() const { return cameras ? 1 : sources; }
  int64_t samples() const { return maps.levels * points; }
  int64_t stride() const { return heads * dim; }
  int64_t row(int64_t item, int64_t source, int64_t key, int64_t head) const {
    return (((item * sources + source) * keys + key) * heads + head) * dim;
  }
  int64_t bag(int64_t item, int64_t query, int64_t head, int64_t set) const {
    return ((item * queries + query) * heads + head) * sets() + set;
  }
  const T* reference(int64_t item, int64_t source, int64_t query) const {
    const int64_t map = cameras ? source * batch + item : item * sources + source;
    return references + (map * queries + query) * near * 2;
  }
  // The reference point of a sample: a camera has one for each height, an entry one for each level.
  int64_t reference_of(int64_t level, int64_t point) const {
    return cameras ? point % near : level;
  }
};

// Of value null where it is not wanted. That of the logits needs those of the weights, so that the
// others are always written.
template <typename T>
struct Gradients {
  const T* out;
  T* value;
  T* offsets;
  T* logits;
};

// Which queries the sources see, and what part each of them has in a query's result.
template <typename T>
struct Sight {
  std::vector<uint8_t> seen;  // (N, B, Q)
  std::vector<T> share;       // (B, Q)

  // `visible`: (N, B, Q, R), or null where all is seen.
  Sight(const Problem<T>& op, const uint8_t* visible, bool first_item)
      : seen(op.sources * op.batch * op.queries, 1),
        share(op.batch * op.queries, 1 / T(op.sources)) {
    if (visible == nullptr) return;
    for (int64_t i = 0; i < static_cast<int64_t>(seen.size()); ++i) {
      bool any = false;
      for (int64_t r = 0; r < op.near; ++r) any |= visible[i * op.near + r] != 0;
      seen[i] = any;
    }
    const int64_t all = op.batch * op.queries;
    for (int64_t i = 0; i < all; ++i) {
      int64_t count = 0;
      for (int64_t n = 0; n < op.sources; ++n) count += seen[n * all + i];
      share[i] = 1 / T(std::max<int64_t>(1, count));
    }
    if (!first_item) return;
    for (int64_t n = 0; n < op.sources; ++n) {
      for (int64_t i = op.queries; i < all; ++i) seen[n * all + i] = seen[n * all + i % op.queries];
    }
  }
};

}  // namespace
}  // namespace turbo_physai

#define TARGET_INCLUDE "common/cpu/attention.h"
#include "common/cpu/foreach_target.h"
#endif

namespace turbo_physai {
namespace TARGET {
namespace {

#include "common/cpu/simd.h"
#include "common/cpu/sampling.h"
#include "common/cpu/softmax.h"

// The samples of whole levels that a bag has, as often as a block takes them.
struct Pattern {
  int64_t begin, samples;  // in the bag
  int64_t at_once;         // bags in a block
  Levels levels;
  std::vector<int32_t> reference;  // of each sample of one bag

  template <typename T>
  Pattern(const Problem<T>& op, int64_t first_level, int64_t last_level)
      : begin(first_level * op.points),
        samples((last_level - first_level) * op.points),
        at_once(std::max<int64_t>(1, kBlock / samples)) {
    for (int64_t bag = 0; bag < at_once; ++bag) {
      for (int64_t l = first_level; l < last_level; ++l) {
        levels.add(op.maps, l, op.maps.starts[l], op.points);
      }
    }
    levels.pad();
    for (int64_t i = begin; i < begin + samples; ++i) {
      reference.push_back(op.reference_of(i / op.points, i % op.points));
    }
  }
};

// A run of queries of one (batch item, head), looked at from one source.
template <typename T>
struct Run {
  int64_t item, head, begin, end, set, source;
  std::vector<T> weights;        // (queries, L * P)
  std::vector<int32_t> queries;  // those that the source sees, counted from `begin`
  int64_t seen = 0;              // how many; the rest may be read, and means nothing

  Run(const Problem<T>& op, int64_t item, int64_t head, int64_t set, int64_t run)
      : item(item),
        head(head),
        begin(run * kQueries),
        end(std::min(op.queries, begin + kQueries)),
        set(set),
        source(set),
        weights((end - begin) * op.samples()),
        queries(kQueries + kBlock) {
    weigh(op);
  }

  int64_t bag(const Problem<T>& op, int64_t query) const {
    return op.bag(item, begin + query, head, set);
  }
  const T* share(const Problem<T>& op, const Sight<T>& sight) const {
    return &sight.share[item * op.queries + begin];
  }

  void weigh(const Problem<T>& op) {
    const int64_t samples = op.samples();
    softmax(op.logits + bag(op, 0) * samples, op.heads * op.sets() * samples, end - begin, samples,
            weights.data());
  }

  void look_from(const Problem<T>& op, const Sight<T>& sight, int64_t from) {
    source = from;
    seen = 0;
    const uint8_t* flags = &sight.seen[(source * op.batch + item) * op.queries];
    for (int64_t query = begin; query < end; ++query) {
      queries[seen] = query - begin;
      seen += flags[query];
    }
  }
};

// Reads `count` samples of the pattern, from its `first` on, of each of `bags` queries of the run.
template <typename T>
INLINE void read(Block<T>& b, const Problem<T>& op, const Run<T>& run, const T* share,
                 const int32_t* queries, int bags, const Pattern& pattern, int64_t first,
                 int count) {
  alignas(64) T offset[2 * kBlock], around[2 * kBlock];
  const int32_t* reference = &pattern.reference[first];
  const int64_t sample = pattern.begin + first;
  int i = 0;
  for (int bag = 0; bag < bags; ++bag) {
    // The heads' samples alternate in memory, and the hardware does not see through that.
    const int64_t next = run.bag(op, queries[bag + bags]);
    prefetch<false>(op.offsets + 2 * (next * op.samples() + sample), 2 * count);
    const int64_t query = queries[bag];
    const T* offsets = op.offsets + 2 * (run.bag(op, query) * op.samples() + sample);
    const T* weights = &run.weights[query * op.samples() + sample];
    const T* references = op.reference(run.item, run.source, run.begin + query);
    const T part = share[query];
    for (int s = 0; s < count; ++s, ++i) {
      offset[2 * i] = offsets[2 * s];
      offset[2 * i + 1] = offsets[2 * s + 1];
      around[2 * i] = references[2 * reference[s]];
      around[2 * i + 1] = references[2 * reference[s] + 1];
      b.weight[i] = weights[s] * part;
    }
  }
  b.count = i;
  const int32_t *width = &pattern.levels.width[first], *height = &pattern.levels.height[first];
  for (i = 0; i < b.count; ++i) {
    b.x[i] = pixel(around[2 * i] + offset[2 * i] / T(width[i]), width[i]);
    b.y[i] = pixel(around[2 * i + 1] + offset[2 * i + 1] / T(height[i]), height[i]);
  }
}

// Calls visit(queries, bags, first, count) for each block of what the source sees of the run, once
// it is located.
template <typename T, typename Visit>
INLINE void for_each_block(Block<T>& b, const Problem<T>& op, const Sight<T>& sight,
                           const Run<T>& run, const Pattern& pattern, const Visit& visit) {
  const T* value = op.value + op.row(run.item, run.source, 0, run.head);
  const T* share = run.share(op, sight);
  for (int64_t at = 0; at < run.seen; at += pattern.at_once) {
    const int bags = std::min(pattern.at_once, run.seen - at);
    const int32_t* queries = &run.queries[at];
    for (int64_t first = 0; first < pattern.samples; first += kBlock) {
      const int count = std::min<int64_t>(kBlock, pattern.samples - first);
      read(b, op, run, share, queries, bags, pattern, first, count);
      b.locate(pattern.levels, first, value, op.stride());
      visit(queries, bags, first, count);
    }
  }
}

template <typename T>
void forward(const Problem<T>& op, const Sight<T>& sight, T* out) {
  const Pattern pattern(op, 0, op.maps.levels);
  const int64_t runs = (op.queries + kQueries - 1) / kQueries;
  advise_huge_pages(out, op.batch * op.queries * op.stride() * sizeof(T));

  parallel(op.batch * op.heads * runs, op.threads, [&](Tasks& tasks) {
    Block<T> b;
    for (int64_t task; tasks.next(task);) {
      Run<T> run(op, task / runs / op.heads, task / runs % op.heads, 0, task % runs);
      T* sums = out + ((run.item * op.queries + run.begin) * op.heads + run.head) * op.dim;
      for (int64_t query = 0; query < run.end - run.begin; ++query) {
        std::memset(sums + query * op.stride(), 0, op.dim * sizeof(T));
      }
      for (int64_t source = 0; source < op.sources; ++source) {
        if (run.set != (op.cameras ? 0 : source)) {
          run.set = source;
          run.weigh(op);
        }
        run.look_from(op, sight, source);
        for_each_block(
            b, op, sight, run, pattern,
            [&](const int32_t* queries, int bags, int64_t, int count) INLINE_LAMBDA {
              for (int i = 0; i < bags; ++i) {
                T* sum = sums + queries[i] * op.stride();
                for_each_strip<T>(op.dim, [&](auto strip, int64_t d) INLINE_LAMBDA {
                  gather(strip, d, b, i * count, (i + 1) * count, false, sum);
                });
              }
            });
      }
    }
  });
}

// Leaves the gradients of the weights where those of the logits will be; of one level, the latter.
template <bool of_value, typename T>
void backward_level(const Problem<T>& op, const Sight<T>& sight, const Gradients<T>& grads,
                    int64_t item, int64_t head, int64_t set, int64_t level) {
  const Pattern pattern(op, level, level + 1);
  const intptr_t to_grad = distance<T>(op.value, grads.value);
  const int64_t samples = op.samples(), runs = (op.queries + kQueries - 1) / kQueries;
  const int64_t first_source = op.cameras ? 0 : set;
  const int64_t last_source = op.cameras ? op.sources : set + 1;
  alignas(64) T outside[kMaxDim] = {};
  Block<T> b;
  for (int64_t r = 0; r < runs; ++r) {
    Run<T> run(op, item, head, set, r);
    const T* share = run.share(op, sight);
    const auto sample = [&](int64_t query) { return run.bag(op, query) * samples + pattern.begin; };
    for (int64_t query = 0; query < run.end - run.begin; ++query) {
      std::memset(grads.offsets + 2 * sample(query), 0, 2 * op.points * sizeof(T));
      std::memset(grads.logits + sample(query), 0, op.points * sizeof(T));
    }
    for (int64_t source = first_source; source < last_source; ++source) {
      run.look_from(op, sight, source);
      for_each_block(
          b, op, sight, run, pattern,
          [&](const int32_t* queries, int bags, int64_t first, int count) INLINE_LAMBDA {
            for (int i = 0; i < bags; ++i) {
              const int64_t query = run.begin + queries[i];
              const T* grad = grads.out + ((item * op.queries + query) * op.heads + head) * op.dim;
              spread<of_value>(b, i * count, (i + 1) * count, op.dim, to_grad, grad, outside);
            }
            b.differentiate();
            for (int j = 0, i = 0; j < bags; ++j) {
              const int64_t at = sample(queries[j]) + first;
              const T part = share[queries[j]];
              T *grad_offsets = grads.offsets + 2 * at, *grad_weights = grads.logits + at;
              for (; i < (j + 1) * count; ++i) {
                *grad_offsets++ += b.slope[2 * i];
                *grad_offsets++ += b.slope[2 * i + 1];
                *grad_weights++ += part * b.sampled[i];
              }
            }
          });
    }
    if (op.maps.levels == 1) {
      softmax_backward(run.weights.data(), run.end - run.begin, samples,
                       grads.logits + sample(0), op.heads * op.sets() * samples);
    }
  }
}

template <typename T>
void backward_softmax(const Problem<T>& op, T* grad_logits) {
  const int64_t samples = op.samples(), bags = op.bag(op.batch, 0, 0, 0);
  const int64_t runs = (bags + kQueries - 1) / kQueries;
  parallel(runs, op.threads, [&](Tasks& tasks) {
    std::vector<T> weights(kQueries * samples);
    for (int64_t task; tasks.next(task);) {
      const int64_t first = task * kQueries, count = std::min(kQueries, bags - first);
      softmax(op.logits + first * samples, samples, count, samples, weights.data());
      softmax_backward(weights.data(), count, samples, grad_logits + first * samples, samples);
    }
  });
}

template <typename T>
void backward(const Problem<T>& op, const Sight<T>& sight, const Gradients<T>& grads) {
  if (grads.value) {
    const size_t bytes = op.row(op.batch, 0, 0, 0) * sizeof(T);
    advise_huge_pages(grads.value, bytes);
    zero(grads.value, bytes, op.threads);
  }
  const int64_t groups = op.maps.overlap() ? 1 : op.maps.levels;
  parallel(op.batch * op.sets() * op.heads * groups, op.threads, [&](Tasks& tasks) {
    for (int64_t task; tasks.next(task);) {
      const int64_t head = task / groups % op.heads, set = task / groups / op.heads % op.sets();
      const int64_t item = task / groups / op.heads / op.sets();
      for (int64_t l = task % groups; l < op.maps.levels; l += groups) {
        if (grads.value) {
          backward_level<true>(op, sight, grads, item, head, set, l);
        } else {
          backward_level<false>(op, sight, grads, item, head, set, l);
        }
      }
    }
  });
  if (op.maps.levels > 1) backward_softmax(op, grads.logits);
}

}  // namespace
}  // namespace TARGET
}  // namespace turbo_physai
