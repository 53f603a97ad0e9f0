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

  // Steps `start` .. total - 1 fall from lr to the final rate; the last of them has it.
  const double last = static_cast<double>(total) - 1;
  double start = warmup;
  if (config.schedule == "wsd") {
    start = std::max(warmup, std::round(static_cast<double>(total) * (1 - config.decay_fraction)));
  } else if (config.schedule != "linear" && config.schedule != "cosine") {
    throw std::invalid_argument("unknown schedule: " + config.schedule);
  }
  const double progress = last > start ? std::clamp((at - start) / (last - start), 0.0, 1.0) : at >= last;
  const double remaining =
      config.schedule == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * progress)) : 1 - progress;
  return config.lr * (config.min_lr + (1 - config.min_lr) * remaining);
}

}  // namespace narrowgauge::optim
