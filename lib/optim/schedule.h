#pragma once
#include <cstdint>

#include "lib/config/optim_config.h"

namespace narrowgauge::optim {

// Learning rate of 0-based optimizer step `step`: a pure function. Linear warmup over warmup_steps (the first
// step already has lr / warmup_steps), then by name, over a schedule of `total` steps:
//   constant  lr
//   linear    lr -> min_lr * lr
//   cosine    half a cosine from lr to min_lr * lr
//   wsd       lr, then over the last decay_fraction of the schedule linearly to min_lr * lr
// The final rate is reached at step `total` and stays. Throws std::invalid_argument for another name. `total`
// is optim.schedule_steps, or train.steps when 0.
double learning_rate(const OptimConfig& config, int64_t total, int64_t step);

}  // namespace narrowgauge::optim
