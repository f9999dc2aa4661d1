// Bilinear samples of one target, located and gathered in blocks: included after _simd.h in the
// namespace that _foreach_target.h opens, so no include guard.

// The levels of consecutive samples: one entry a sample.
struct Levels {
  std::vector<int32_t> width, height, start;

  void add(const Pyramid& maps, int64_t level, int64_t start_row, int64_t samples) {
    width.insert(width.end(), samples, maps.width(level));
    height.insert(height.end(), samples, maps.height(level));
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

// Passes `grad`, the gradient of the sum over samples [begin, end), on to their corners, whose
// gradients stand `to_grad` bytes from their rows, and leaves the corners' dot products with it.
// `outside` takes what the corners outside would get.
template <typename T>
INLINE void spread(Block<T>& b, int begin, int end, int64_t dim, intptr_t to_grad, const T* grad,
                   T* outside) {
  for (int i = begin; i < end; ++i) {
    T* grad_rows[4];
    for (int corner = 0; corner < 4; ++corner) {
      const T* row = b.row[i][corner];
      grad_rows[corner] = row == kZeros<T> ? outside : moved(row, to_grad);
    }
    Vec<T, 4> dot = {};
    for_each_strip<T>(dim, [&](auto strip, int64_t d) INLINE_LAMBDA {
      dot += scatter(strip, d, b.row[i], grad_rows, b.scale[i], grad);
    });
    store(b.dot[i], dot);
  }
}

// What the corners' dot products say about sample i of a block: the slope of its bilinear value
// along x and y, for one pixel, and that value itself.
template <typename T>
struct Slopes {
  T x, y, value;
};

template <typename T>
INLINE Slopes<T> slopes(const Block<T>& b, int i) {
  const T(&dot)[4] = b.dot[i];
  const T fx = b.x[i], fy = b.y[i];
  return {(1 - fy) * (dot[1] - dot[0]) + fy * (dot[3] - dot[2]),
          (1 - fx) * (dot[2] - dot[0]) + fx * (dot[3] - dot[1]),
          b.factor[0][i] * dot[0] + b.factor[1][i] * dot[1] + b.factor[2][i] * dot[2] +
              b.factor[3][i] * dot[3]};
}
