#include "lib/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace narrowgauge::optim {

double learning_rate(const OptimConfig& config, int64_t total, int64_t step) {
  const auto warmup = static_cast<double>(config.warmup_steps);
  const auto at = static_cast<double>(step);
  if (at < warmup) return config.lr * (at + 1) / warmup;
  if (config.schedule == "constant") return config.lr;

  double start = warmup;
  const auto end = static_cast<double>(total);
  if (config.schedule == "wsd") {
    start = std::max(warmup, std::round(end * (1 - config.decay_fraction)));
  } else if (config.schedule != "linear" && config.schedule != "cosine") {
    throw std::invalid_argument("unknown schedule: " + config.schedule);
  }
  const double progress = at >= end ? 1.0 : std::max(0.0, (at - start) / (end - start));
  const double remaining =
      config.schedule == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1 - progress;
  return config.lr * (config.min_lr + (1 - config.min_lr) * remaining);
}

}  // namespace narrowgauge::optim
