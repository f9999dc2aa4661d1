// Vectors of one target: included in the namespace that foreach_target.h opens, so no include
// guard. GCC's and Clang's vector extensions take any width on any architecture.

template <typename T, int N>
struct VecOf {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <typename T, int N>
using Vec = typename VecOf<T, N>::type;

// As many lanes as a register has, and at least four.
template <typename T>
constexpr int kLanes = TARGET_BYTES / sizeof(T) > 4 ? TARGET_BYTES / sizeof(T) : 4;

template <typename V, typename T>
INLINE V load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <typename V, typename T>
INLINE void store(T* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

// An integer as wide as T.
template <typename T>
struct IndexOf {
  using type = int32_t;
};
template <>
struct IndexOf<double> {
  using type = int64_t;
};
template <typename T>
using Index = typename IndexOf<T>::type;

// `count` vectors of N lanes side by side.
template <int N, int count>
struct Strip {
  static constexpr int kVectorLanes = N, kVectors = count;
};

// Calls kernel(strip, d) for strips that cover [0, dim), the widest first; dim is a multiple of 4.
template <typename T, typename Kernel>
INLINE void for_each_strip(int64_t dim, const Kernel& kernel) {
  constexpr int N = kLanes<T>;
  int64_t d = 0;
  for (; d + 4 * N <= dim; d += 4 * N) kernel(Strip<N, 4>{}, d);
  for (; d + 2 * N <= dim; d += 2 * N) kernel(Strip<N, 2>{}, d);
  for (; d + N <= dim; d += N) kernel(Strip<N, 1>{}, d);
  for (; d < dim; d += 4) kernel(Strip<4, 1>{}, d);
}

template <bool write, typename T>
INLINE void prefetch(const T* from, int64_t count) {
  for (int64_t i = 0; i < count; i += 64 / sizeof(T)) __builtin_prefetch(from + i, write);
}

// Bytes between two arrays, and the element of the second that stands where `of` does in the first.
template <typename T>
INLINE intptr_t distance(const T* first, const T* second) {
  return reinterpret_cast<intptr_t>(second) - reinterpret_cast<intptr_t>(first);
}

template <typename T>
INLINE T* moved(const T* of, intptr_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<intptr_t>(of) + bytes);
}

// The sums over the lanes of four vectors, as a vector of four.
template <typename T, int N>
INLINE Vec<T, 4> sums(const Vec<T, N> (&v)[4]) {
#if defined(__clang__) || __GNUC__ >= 12
  if constexpr (N == 4) {
    const Vec<T, 4> ab = __builtin_shufflevector(v[0], v[1], 0, 4, 1, 5) +
                         __builtin_shufflevector(v[0], v[1], 2, 6, 3, 7);
    const Vec<T, 4> cd = __builtin_shufflevector(v[2], v[3], 0, 4, 1, 5) +
                         __builtin_shufflevector(v[2], v[3], 2, 6, 3, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) +
           __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  } else if constexpr (N == 8) {
    const Vec<T, 8> ab = __builtin_shufflevector(v[0], v[1], 0, 1, 2, 3, 8, 9, 10, 11) +
                         __builtin_shufflevector(v[0], v[1], 4, 5, 6, 7, 12, 13, 14, 15);
    const Vec<T, 8> cd = __builtin_shufflevector(v[2], v[3], 0, 1, 2, 3, 8, 9, 10, 11) +
                         __builtin_shufflevector(v[2], v[3], 4, 5, 6, 7, 12, 13, 14, 15);
    const Vec<T, 8> acbd = __builtin_shufflevector(ab, cd, 0, 8, 1, 9, 4, 12, 5, 13) +
                           __builtin_shufflevector(ab, cd, 2, 10, 3, 11, 6, 14, 7, 15);
    return __builtin_shufflevector(acbd, acbd, 0, 4, 1, 5) +
           __builtin_shufflevector(acbd, acbd, 2, 6, 3, 7);
  } else {
    static_assert(N == 16);
    Vec<T, 8> half[4];
    for (int i = 0; i < 4; ++i) {
      half[i] = __builtin_shufflevector(v[i], v[i], 0, 1, 2, 3, 4, 5, 6, 7) +
                __builtin_shufflevector(v[i], v[i], 8, 9, 10, 11, 12, 13, 14, 15);
    }
    return sums<T, 8>(half);
  }
#else
  Vec<T, 4> total{};
  for (int i = 0; i < 4; ++i) {
    for (int lane = 0; lane < N; ++lane) total[i] += v[i][lane];
  }
  return total;
#endif
}

template <typename T>
INLINE void transpose(Vec<T, 4> (&rows)[4]) {
#if defined(__clang__) || __GNUC__ >= 12
  const Vec<T, 4> ab = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Vec<T, 4> cd = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Vec<T, 4> ef = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Vec<T, 4> gh = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  rows[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  rows[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  rows[2] = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
  rows[3] = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
#else
  const Vec<T, 4> old[4] = {rows[0], rows[1], rows[2], rows[3]};
  for (int i = 0; i < 4; ++i) rows[i] = Vec<T, 4>{old[0][i], old[1][i], old[2][i], old[3][i]};
#endif
}

// Stores x0 y0 x1 y1 x2 y2 x3 y3.
template <typename T>
INLINE void interleave(Vec<T, 4> x, Vec<T, 4> y, T* to) {
#if defined(__clang__) || __GNUC__ >= 12
  store(to, __builtin_shufflevector(x, y, 0, 4, 1, 5));
  store(to + 4, __builtin_shufflevector(x, y, 2, 6, 3, 7));
#else
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = x[i];
    to[2 * i + 1] = y[i];
  }
#endif
}
