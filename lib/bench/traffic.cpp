#include "lib/bench/traffic.h"

namespace narrowgauge::bench {

double least_traffic(const ModelConfig& model) {
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto rotated = static_cast<double>(model.query_width() + model.kv_width());
  const auto ffn = static_cast<double>(model.ffn_size);
  return static_cast<double>(model.layers) * (32 * hidden + 8 * rotated + 16 * ffn) + 28 * hidden;
}

}  // namespace narrowgauge::bench
