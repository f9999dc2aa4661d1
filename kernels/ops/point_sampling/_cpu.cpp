// point_sampling on the CPU; the formula and its rounding stand in __init__.py.
//
// A task is a run of points of one batch item in the order of the results, (query, height). They
// are scaled to metres once, then projected into one camera after the other while in the cache.

#if !defined(TARGET)

#include <algorithm>

#include "common/cpu/runtime.h"

namespace turbo_physai {

constexpr int kPointsInTask = 512;
constexpr float kNearest = 1e-5f;  // depth in metres

// Contiguous arrays, shaped as __init__.py says; `box` holds the minima, then the extents.
template <typename P>
struct Pillars {
  const P* points;
  const float* lidar2img;
  const P* box;
  float* points_cam;
  bool* visible;
  int64_t width, height, batch, cameras, heights, queries, threads;
};

}  // namespace turbo_physai

#define TARGET_INCLUDE "ops/point_sampling/_cpu.cpp"
#include "common/cpu/foreach_target.h"
#define TARGET_LAST
#endif

namespace turbo_physai {
namespace TARGET {

#include "common/cpu/simd.h"

// A product that no compiler, whatever its options, fuses with the addition that follows: it passes
// through an empty instruction. Without one for the machine, it passes through memory.
template <typename V>
INLINE V rounded(V product) {
#if defined(__x86_64__)
  if (TARGET_BYTES > 16) asm("" : "+v"(product));  // the baseline has no fused addition
#elif defined(__aarch64__)
  asm("" : "+w"(product));
#else
  asm("" : "+m"(product));
#endif
  return product;
}

// Points of one task, padded to whole vectors.
struct Metres {
  alignas(64) float axis[3][kPointsInTask] = {};

  template <typename P>
  INLINE void read(const Pillars<P>& op, int64_t item, int64_t first, int count) {
    int64_t query = first / op.heights, height = first % op.heights;
    for (int i = 0; i < count; ++i) {
      const P* point = op.points + ((item * op.heights + height) * op.queries + query) * 3;
      for (int k = 0; k < 3; ++k) axis[k][i] = rounded(point[k] * op.box[3 + k]) + op.box[k];
      if (++height == op.heights) {
        height = 0;
        ++query;
      }
    }
  }
};

struct Seen {
  alignas(64) float x[kPointsInTask], y[kPointsInTask];
  alignas(64) int32_t visible[kPointsInTask];  // all bits, or none

  INLINE void project(const Metres& metres, const float* m, float width, float height, int count) {
    constexpr int N = kLanes<float>;
    using V = Vec<float, N>;
    for (int i = 0; i < count; i += N) {
      const V px = load<V>(metres.axis[0] + i), py = load<V>(metres.axis[1] + i);
      const V pz = load<V>(metres.axis[2] + i);
      V row[3];
      for (int k = 0; k < 3; ++k) {
        row[k] = rounded(m[4 * k] * px) + rounded(m[4 * k + 1] * py);
        row[k] = row[k] + rounded(m[4 * k + 2] * pz) + m[4 * k + 3];
      }
      const V nearest = V{} + kNearest;
      const V depth = row[2] <= nearest ? nearest : row[2];  // NaN stays
      const V u = row[0] / depth / width, v = row[1] / depth / height;
      store(x + i, u);
      store(y + i, v);
      store(visible + i, (row[2] > nearest) & (v > 0) & (v < 1) & (u < 1) & (u > 0));
    }
  }

  INLINE void write(float* __restrict points_cam, bool* __restrict flags, int count) const {
    for (int i = 0; i < count; ++i) {
      points_cam[2 * i] = x[i];
      points_cam[2 * i + 1] = y[i];
    }
    for (int i = 0; i < count; ++i) flags[i] = visible[i] & 1;
  }
};

template <typename P>
void sample_pillars(const Pillars<P>& op) {
  const int64_t size = op.queries * op.heights;
  const int64_t runs = (size + kPointsInTask - 1) / kPointsInTask;
  advise_huge_pages(op.points_cam, op.cameras * op.batch * size * 2 * sizeof(float));
  parallel(op.batch * runs, op.threads, [&](Tasks& tasks) {
    Metres metres;
    Seen seen;
    for (int64_t task; tasks.next(task);) {
      const int64_t item = task / runs, first = task % runs * kPointsInTask;
      const int count = std::min<int64_t>(kPointsInTask, size - first);
      metres.read(op, item, first, count);
      for (int64_t camera = 0; camera < op.cameras; ++camera) {
        seen.project(metres, op.lidar2img + (item * op.cameras + camera) * 16, op.width, op.height,
                     count);
        const int64_t at = (camera * op.batch + item) * size + first;
        seen.write(op.points_cam + 2 * at, op.visible + at, count);
      }
    }
  });
}

}  // namespace TARGET
}  // namespace turbo_physai

#if defined(TARGET_LAST)

using namespace turbo_physai;

// `points_cam` and `visible` may hold anything on entry.
#define DEFINE(P, SUFFIX)                                                                          \
  EXPORT void point_sampling_##SUFFIX(const P* points, const float* lidar2img, const P* box,       \
                                      float* points_cam, bool* visible, int64_t width,             \
                                      int64_t height, int64_t batch, int64_t cameras,              \
                                      int64_t heights, int64_t queries, int64_t threads) {         \
    const Pillars<P> op{points, lidar2img, box,     points_cam, visible, width,                    \
                        height, batch,     cameras, heights,    queries, threads};                 \
    ON_BEST_ISA(sample_pillars, op)                                                                \
  }

DEFINE(float, f32)
DEFINE(double, f64)

#endif
