// The levels of deformable attention's maps, and the limits of its kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace turbo_physai {

constexpr int kMaxDim = 256;
constexpr int kBlock = 64;  // samples located together

// Read for the corners outside: a row of its own, since zero times an infinite pixel is not zero.
template <typename T>
alignas(64) constexpr T kZeros[kMaxDim] = {};

// Levels of (height, width), and each one's first row.
struct Pyramid {
  const int64_t* shapes;
  const int64_t* starts;
  int64_t levels;

  int64_t height(int64_t level) const { return shapes[2 * level]; }
  int64_t width(int64_t level) const { return shapes[2 * level + 1]; }

  bool overlap() const {
    std::vector<std::pair<int64_t, int64_t>> spans;
    for (int64_t l = 0; l < levels; ++l) {
      spans.emplace_back(starts[l], starts[l] + height(l) * width(l));
    }
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i) {
      if (spans[i].first < spans[i - 1].second) return true;
    }
    return false;
  }
};

}  // namespace turbo_physai
