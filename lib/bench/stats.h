#pragma once
#include <vector>

namespace narrowgauge::bench {

// The middle of repeated measurements and how far they lie apart.
struct Spread {
  double median = 0;
  double p20 = 0;
  double p80 = 0;
};

// The value below which a fraction of the samples lies, between neighbours by linear interpolation. Fraction
// from 0 to 1; std::invalid_argument for no samples.
double percentile(std::vector<double> samples, double fraction);
Spread spread(const std::vector<double>& samples);

}  // namespace narrowgauge::bench
