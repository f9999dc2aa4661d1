// Bilinear samples of one target, located and gathered in blocks: included after simd.h in the
// namespace that foreach_target.h opens, so no include guard.

// The levels of consecutive samples: one entry a sample.
struct Levels {
  std::vector<int32_t> width, height, start;

  // Vectors read past the last sample of a block.
  void pad() {
    for (auto* entries : {&width, &height, &start}) entries->resize(entries->size() + kBlock);
  }

  void add(const Pyramid& maps, int64_t level, int64_t start_row, int64_t samples) {
    width.insert(width.end(), samples, maps.width(level));
    height.insert(height.end(), samples, maps.height(level));
    start.insert(start.end(), samples, start_row);
  }
};

// location * size - 0.5, rounded as torch's grid_sample rounds it on a CPU, with its grid of -1 to
// 1 and one fused multiply-add. A sample on the line between two pixels, where those of a regular
// grid all lie, has a gradient to each side, and who replaces grid_sample must take the same one.
template <typename T>
INLINE T pixel(T location, int32_t size) {
  const T grid = 2 * location - 1;
  return (grid + 1) * (T(size) / 2) - T(0.5);
}

// Samples of one (batch item, head), in arrays so that they are located a vector at a time.
// Corners stand in the order (y0, x0), (y0, x1), (y1, x0), (y1, x1).
template <typename T>
struct Block {
  static constexpr int N = kLanes<T>;
  static_assert(kBlock % N == 0);

  int count;
  const T* value;                      // rows are counted from here
  alignas(64) T x[kBlock], y[kBlock];  // in pixels; once located, within the pixel
  alignas(64) T weight[kBlock];
  alignas(64) T factor[4][kBlock];     // bilinear
  alignas(64) int64_t row[4][kBlock];  // bytes from `value` to the corner's row, or to kZeros
  alignas(64) T scale[4][kBlock];      // weight times factor; 0 outside
  alignas(64) T dot[kBlock][4];        // of the corner's row with the incoming gradient
  alignas(64) T slope[2 * kBlock];     // the gradient of (x, y), in pixels
  alignas(64) T sampled[kBlock];       // the gradient of the weight

  const T* row_of(int corner, int i) const { return moved(value, row[corner][i]); }

  // Finds the corners and points the rows into `map`, whose rows lie `stride` elements apart.
  INLINE void locate(const Levels& levels, int64_t first, const T* map, int64_t stride) {
    value = map;
    for (int i = 0; i < count; i += N) locate(levels, first + i, i, stride * sizeof(T));
  }

  INLINE void locate(const Levels& levels, int64_t level, int i, int64_t row_bytes) {
    using V = Vec<T, N>;
    using I = Vec<Index<T>, N>;
    using Narrow = Vec<int32_t, N>;
    using Wide = Vec<int64_t, N>;
    const I width = __builtin_convertvector(load<Narrow>(&levels.width[level]), I);
    const I height = __builtin_convertvector(load<Narrow>(&levels.height[level]), I);
    const I start = __builtin_convertvector(load<Narrow>(&levels.start[level]), I);
    const V far_x = __builtin_convertvector(width, V), far_y = __builtin_convertvector(height, V);
    V px = load<V>(x + i), py = load<V>(y + i), w = load<V>(weight + i);
    // False for NaN. A sample that touches no pixel goes on as one at (0, 0) with no corner. At -1
    // it reads nothing, but one step on it does: that is the slope that grid_sample gives there.
    const I touches = (I)(px >= -1) & (I)(py >= -1) & (I)(px < far_x) & (I)(py < far_y);
    px = (V)((I)px & touches);
    py = (V)((I)py & touches);
    w = (V)((I)w & touches);
    I x0 = __builtin_convertvector(px, I), y0 = __builtin_convertvector(py, I);
    x0 += (I)(px < __builtin_convertvector(x0, V));  // the conversion rounds towards zero
    y0 += (I)(py < __builtin_convertvector(y0, V));
    const V fx = px - __builtin_convertvector(x0, V), fy = py - __builtin_convertvector(y0, V);
    store(x + i, fx);
    store(y + i, fy);
    store(weight + i, w);
    const I left = touches & (I)(x0 >= 0), right = touches & (I)(x0 + 1 < width);
    const I top = (I)(y0 >= 0), bottom = (I)(y0 + 1 < height);
    const I key = start + y0 * width + x0;
    const I inside[4] = {top & left, top & right, bottom & left, bottom & right};
    const I keys[4] = {key, key + 1, key + width, key + width + 1};
    const V factors[4] = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx};
    const int64_t zeros = distance(value, kZeros<T>);
    for (int corner = 0; corner < 4; ++corner) {
      const Wide in = __builtin_convertvector(inside[corner], Wide);
      const Wide at = __builtin_convertvector(keys[corner], Wide) * row_bytes;
      store(row[corner] + i, (in & at) | (~in & zeros));
      store(factor[corner] + i, factors[corner]);
      store(scale[corner] + i, (V)((I)(w * factors[corner]) & inside[corner]));
    }
  }

  // Fetches the rows early.
  INLINE void fetch(int64_t dim) const {
    for (int i = 0; i < count; ++i) {
      for (int corner = 0; corner < 4; ++corner) prefetch<false>(row_of(corner, i), dim);
    }
  }

  // From the dot products, the gradients of the samples' places and weights.
  INLINE void differentiate() {
    using V = Vec<T, 4>;
    for (int i = 0; i < count; i += 4) {
      V d[4] = {load<V>(dot[i]), load<V>(dot[i + 1]), load<V>(dot[i + 2]), load<V>(dot[i + 3])};
      transpose<T>(d);
      const V fx = load<V>(x + i), fy = load<V>(y + i), w = load<V>(weight + i);
      const V along_x = w * ((1 - fy) * (d[1] - d[0]) + fy * (d[3] - d[2]));
      const V along_y = w * ((1 - fx) * (d[2] - d[0]) + fx * (d[3] - d[1]));
      interleave<T>(along_x, along_y, slope + 2 * i);
      store(sampled + i, load<V>(factor[0] + i) * d[0] + load<V>(factor[1] + i) * d[1] +
                             load<V>(factor[2] + i) * d[2] + load<V>(factor[3] + i) * d[3]);
    }
  }
};

// Adds samples [begin, end) to `out`, or sets it to their sum.
template <typename T, typename S>
INLINE void gather(S, int64_t d, const Block<T>& b, int begin, int end, bool set, T* out) {
  constexpr int N = S::kVectorLanes, kVectors = S::kVectors;
  using V = Vec<T, N>;
  const T* value = b.value + d;
  V even[kVectors], odd[kVectors];  // two chains of additions run at twice the speed of one
  for (int k = 0; k < kVectors; ++k) {
    even[k] = set ? V{} : load<V>(out + d + k * N);
    odd[k] = V{};
  }
  for (int i = begin; i < end; ++i) {
    const T* rows[4];
    for (int corner = 0; corner < 4; ++corner) rows[corner] = moved(value, b.row[corner][i]);
    for (int k = 0; k < kVectors; ++k) {
      even[k] += b.scale[0][i] * load<V>(rows[0] + k * N);
      odd[k] += b.scale[1][i] * load<V>(rows[1] + k * N);
      even[k] += b.scale[2][i] * load<V>(rows[2] + k * N);
      odd[k] += b.scale[3][i] * load<V>(rows[3] + k * N);
    }
  }
  for (int k = 0; k < kVectors; ++k) store(out + d + k * N, even[k] + odd[k]);
}

// Adds to the gradients of a sample's corners where `add` says so; returns the corners' dot products
// with `grad`.
template <bool add, typename T, typename S>
INLINE Vec<T, 4> scatter(S, int64_t d, const T* const (&rows)[4], T* const (&grad_rows)[4],
                         const T (&scale)[4], const T* grad) {
  constexpr int N = S::kVectorLanes, kVectors = S::kVectors;
  using V = Vec<T, N>;
  V g[kVectors], dot[4] = {};
  for (int k = 0; k < kVectors; ++k) g[k] = load<V>(grad + d + k * N);
  for (int corner = 0; corner < 4; ++corner) {
    for (int k = 0; k < kVectors; ++k) {
      const int64_t at = d + k * N;
      dot[corner] += g[k] * load<V>(rows[corner] + at);
      if constexpr (add) {
        store(grad_rows[corner] + at, load<V>(grad_rows[corner] + at) + scale[corner] * g[k]);
      }
    }
  }
  return sums<T, N>(dot);
}

// Passes `grad`, the gradient of the sum over samples [begin, end), on to their corners, whose
// gradients stand `to_grad` bytes from their rows, and leaves the corners' dot products with it.
// `outside` takes what the corners outside would get. Without `add` the corners' gradients are not
// touched.
template <bool add, typename T>
INLINE void spread(Block<T>& b, int begin, int end, int64_t dim, intptr_t to_grad, const T* grad,
                   T* outside) {
  // All of a block's rows and their gradients would not fit into the first cache.
  constexpr int kAhead = 12;
  for (int i = begin; i < end; ++i) {
    const int next = std::min(i + kAhead, b.count - 1);
    for (int corner = 0; corner < 4; ++corner) {
      prefetch<false>(b.row_of(corner, next), dim);
      if constexpr (add) prefetch<true>(moved(b.row_of(corner, next), to_grad), dim);
    }
    const T* rows[4];
    T* grad_rows[4];
    T scale[4];
    for (int corner = 0; corner < 4; ++corner) {
      rows[corner] = b.row_of(corner, i);
      T* grad_row = const_cast<T*>(moved(rows[corner], to_grad));
      grad_rows[corner] = rows[corner] == kZeros<T> ? outside : grad_row;
      scale[corner] = b.scale[corner][i];
    }
    Vec<T, 4> dot = {};
    for_each_strip<T>(dim, [&](auto strip, int64_t d) INLINE_LAMBDA {
      dot += scatter<add>(strip, d, rows, grad_rows, scale, grad);
    });
    store(b.dot[i], dot);
  }
}
