#pragma once
// An independent AdamW in fp64: the map is searched, the order is PyTorch's, nothing is shared with the
// product.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace narrowgauge::test {

// The dynamic map as bitsandbytes builds it: midpoints of equal cells in every decade, then 0 and 1, sorted.
inline std::vector<double> reference_map(bool with_sign) {
  std::vector<double> map{0.0, 1.0};
  for (int i = 0; i < 7; ++i) {
    const int cells = with_sign ? 1 << i : 2 << i;
    for (int k = 0; k < cells; ++k) {
      const double low = 0.1 + 0.9 * k / cells;
      const double high = 0.1 + 0.9 * (k + 1) / cells;
      const double value = std::pow(10.0, i - 6) * (low + high) / 2;
      map.push_back(value);
      if (with_sign) map.push_back(-value);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

inline int nearest_code(const std::vector<double>& map, double x) {
  int best = 0;
  for (int c = 1; c < static_cast<int>(map.size()); ++c) {
    if (std::fabs(map[static_cast<size_t>(c)] - x) < std::fabs(map[static_cast<size_t>(best)] - x)) best = c;
  }
  return best;
}

// Quantises a block of 256 there and back; positive values of an unsigned map never become 0.
inline void through_eight_bits(double* x, int count, bool with_sign) {
  static const std::vector<double> maps[2] = {reference_map(false), reference_map(true)};
  const std::vector<double>& map = maps[with_sign ? 1 : 0];
  double largest = 0;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  for (int i = 0; i < count && largest > 0; ++i) {
    int code = nearest_code(map, x[i] / largest);
    if (!with_sign && x[i] > 0) code = std::max(code, 1);
    x[i] = map[static_cast<size_t>(code)] * largest;
  }
}

struct ReferenceAdamW {
  double lr, beta1, beta2, eps, weight_decay;
  bool eight_bit;
  std::vector<double> p, m, v;  // sizes alike; blocks of 256 from the start
  int step = 0;

  void update(const std::vector<double>& g) {
    ++step;
    const double correction1 = 1 - std::pow(beta1, step);
    const double correction2 = 1 - std::pow(beta2, step);
    m.resize(p.size());
    v.resize(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] *= 1 - lr * weight_decay;
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      p[i] -= lr / correction1 * m[i] / (std::sqrt(v[i]) / std::sqrt(correction2) + eps);
    }
    for (size_t begin = 0; eight_bit && begin < p.size(); begin += 256) {
      const int count = static_cast<int>(std::min<size_t>(256, p.size() - begin));
      through_eight_bits(m.data() + begin, count, true);
      through_eight_bits(v.data() + begin, count, false);
    }
  }
};

}  // namespace narrowgauge::test
