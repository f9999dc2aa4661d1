// Softmax of one target, forward and backward: included after simd.h in the namespace that
// foreach_target.h opens, so no include guard.

// e^x for x <= 0, to 2 units in the last place: Cephes' polynomial after Cody and Waite's
// reduction. What no normal number holds becomes 0.
INLINE float exp_nonpositive(float x) {
  constexpr float kLeast = -87, kRound = 12582912;  // 1.5 * 2**23
  const float clamped = x > kLeast ? x : kLeast;
  const float n = (clamped * 1.44269504f + kRound) - kRound;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float mantissa = p * (r * r) + r + 1;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  const float e = mantissa * power;
  return x >= kLeast ? e : (x < kLeast ? 0 : x);  // NaN stays NaN
}
INLINE double exp_nonpositive(double x) { return std::exp(x); }

// Softmax of bags of `samples` logits, `pitch` from one bag to the next; the weights lie together.
template <typename T>
INLINE void softmax(const T* logits, int64_t pitch, int64_t bags, int64_t samples, T* weights) {
  using V = Vec<T, 4>;
  for (int64_t bag = 0; bag < bags; ++bag) {
    const T* from = logits + bag * pitch;
    T* to = weights + bag * samples;
    prefetch<false>(from + 8 * pitch, samples);
    T peak = from[0];
    int64_t i = 0;
    if (samples >= 4) {
      V peaks = load<V>(from);
      for (i = 4; i + 4 <= samples; i += 4) {
        const V v = load<V>(from + i);
        peaks = v > peaks ? v : peaks;
      }
      for (int lane = 0; lane < 4; ++lane) peak = peaks[lane] > peak ? peaks[lane] : peak;
    }
    for (; i < samples; ++i) peak = from[i] > peak ? from[i] : peak;
    for (i = 0; i < samples; ++i) to[i] = from[i] - peak;
  }
  for (int64_t i = 0; i < bags * samples; ++i) weights[i] = exp_nonpositive(weights[i]);
  for (int64_t bag = 0; bag < bags; ++bag) {
    T* to = weights + bag * samples;
    V sums = {};
    int64_t i = 0;
    for (; i + 4 <= samples; i += 4) sums += load<V>(to + i);
    T sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (; i < samples; ++i) sum += to[i];
    for (i = 0; i < samples; ++i) to[i] /= sum;
  }
}

// From the gradients of the weights, in place, those of the logits.
template <typename T>
INLINE void softmax_backward(const T* weights, int64_t bags, int64_t samples, T* grads,
                             int64_t pitch) {
  using V = Vec<T, 4>;
  for (int64_t bag = 0; bag < bags; ++bag, weights += samples, grads += pitch) {
    V sums = {};
    int64_t i = 0;
    for (; i + 4 <= samples; i += 4) sums += load<V>(weights + i) * load<V>(grads + i);
    T sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (; i < samples; ++i) sum += weights[i] * grads[i];
    for (i = 0; i < samples; ++i) grads[i] = weights[i] * (grads[i] - sum);
  }
}
