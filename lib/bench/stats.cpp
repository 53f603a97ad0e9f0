#include "lib/bench/stats.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace narrowgauge::bench {

double percentile(std::vector<double> samples, double fraction) {
  if (samples.empty()) throw std::invalid_argument("percentile of no samples");
  std::sort(samples.begin(), samples.end());
  const double position = fraction * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (position - static_cast<double>(below)) * (samples[above] - samples[below]);
}

Spread spread(const std::vector<double>& samples) {
  return {
      .median = percentile(samples, 0.5), .p20 = percentile(samples, 0.2), .p80 = percentile(samples, 0.8)};
}

}  // namespace narrowgauge::bench
