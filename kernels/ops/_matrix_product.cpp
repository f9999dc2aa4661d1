// A product of two matrices, for operators that make one of them on the fly. Bitwise the same for
// any number of threads: each number is summed by one of them, in one order.
//
// torch's own library keeps to AVX2 on AMD processors. On one of them (Zen 5), 228 x 2304 times
// 2304 x 256 in float32 ran at 100 GFLOP/s there and at 210 here.

#if !defined(TARGET)

#include <algorithm>

#include "_cpu.h"

namespace turbo_physai {
namespace {

constexpr int64_t kDepth = 384;  // rows of b packed at once: with a strip of them, half of an L1
constexpr int64_t kRows = 120;   // rows of a in a task: what packing costs is spread over them

// Row-major matrices, numbers of a row side by side: out (rows, columns) = a (rows, depth) times
// b (depth, columns), added to what is there where `add` says so.
template <typename T>
struct Product {
  const T* a;
  const T* b;
  T* out;
  int64_t rows, columns, depth, a_row, b_row, out_row, add, threads;
};

}  // namespace
}  // namespace turbo_physai

#define TARGET_INCLUDE "_matrix_product.cpp"
#include "_foreach_target.h"
#define TARGET_LAST
#endif

namespace turbo_physai {
namespace TARGET {
namespace {

#include "_simd.h"

// A tile of the result that fits the registers beside a row of b: 32 registers with AVX-512, else
// 16.
constexpr int kTileRows = TARGET_BYTES == 64 ? 12 : 6;
template <typename T>
constexpr int kTileColumns = 2 * kLanes<T>;

template <typename T, int count>
INLINE void tile(const T* a, int64_t a_row, const T* strip, int64_t depth, T* out) {
  constexpr int N = kLanes<T>;
  using V = Vec<T, N>;
  V sum[count][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const V left = load<V>(strip + k * 2 * N), right = load<V>(strip + k * 2 * N + N);
    for (int i = 0; i < count; ++i) {
      const T number = a[i * a_row + k];
      sum[i][0] += number * left;
      sum[i][1] += number * right;
    }
  }
  for (int i = 0; i < count; ++i) {
    store(out + i * 2 * N, sum[i][0]);
    store(out + i * 2 * N + N, sum[i][1]);
  }
}

// Any number of rows up to `count`: those of a full tile at once, the rest in halves.
template <typename T, int count>
INLINE int tile_of(int64_t rows, const T* a, int64_t a_row, const T* strip, int64_t depth, T* out) {
  if (rows >= count) {
    tile<T, count>(a, a_row, strip, depth, out);
    return count;
  }
  if constexpr (count > 1) return tile_of<T, count / 2>(rows, a, a_row, strip, depth, out);
  return 0;
}

// Rows [begin, end) of a strip of columns.
template <typename T>
INLINE void multiply_strip(const Product<T>& op, int64_t begin, int64_t end, int64_t column) {
  constexpr int kWidth = kTileColumns<T>;
  alignas(64) T strip[kDepth * kWidth], result[kTileRows * kWidth];
  const int64_t width = std::min<int64_t>(kWidth, op.columns - column);
  for (int64_t first = 0; first < op.depth; first += kDepth) {
    const int64_t depth = std::min(kDepth, op.depth - first);
    for (int64_t k = 0; k < depth; ++k) {
      const T* from = op.b + (first + k) * op.b_row + column;
      T* to = strip + k * kWidth;
      for (int64_t j = 0; j < kWidth; ++j) to[j] = j < width ? from[j] : T(0);
    }
    const bool add = first > 0 || op.add != 0;
    for (int64_t row = begin; row < end;) {
      const T* a = op.a + row * op.a_row + first;
      const int done = tile_of<T, kTileRows>(end - row, a, op.a_row, strip, depth, result);
      for (int i = 0; i < done; ++i) {
        T* to = op.out + (row + i) * op.out_row + column;
        for (int64_t j = 0; j < width; ++j) to[j] = (add ? to[j] : T(0)) + result[i * kWidth + j];
      }
      row += done;
    }
  }
}

template <typename T>
void multiply(const Product<T>& op) {
  const int64_t strips = (op.columns + kTileColumns<T> - 1) / kTileColumns<T>;
  const int64_t blocks = (op.rows + kRows - 1) / kRows;
  parallel(blocks * strips, op.threads, [&](Tasks& tasks) {
    for (int64_t task; tasks.next(task);) {
      const int64_t begin = task / strips * kRows;
      multiply_strip(op, begin, std::min(begin + kRows, op.rows),
                     task % strips * kTileColumns<T>);
    }
  });
}

}  // namespace
}  // namespace TARGET
}  // namespace turbo_physai

#if defined(TARGET_LAST)

using namespace turbo_physai;

#define DEFINE(T, SUFFIX)                                                                     \
  EXPORT void matrix_product_##SUFFIX(const T* a, const T* b, T* out, int64_t rows,           \
                                      int64_t columns, int64_t depth, int64_t a_row,          \
                                      int64_t b_row, int64_t out_row, int64_t add,            \
                                      int64_t threads) {                                      \
    const Product<T> op{a, b, out, rows, columns, depth, a_row, b_row, out_row, add, threads}; \
    ON_BEST_ISA(multiply, op)                                                                 \
  }

// Whether torch's own product is the slower one here.
EXPORT int matrix_product_pays() { return best_isa() == Isa::avx512; }

DEFINE(float, f32)
DEFINE(double, f64)

#endif
