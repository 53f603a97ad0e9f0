#pragma once
#include <cstdint>
#include <string>

namespace narrowgauge {

struct OptimConfig {
  double lr = 3e-4;                 // peak
  double min_lr = 0.1;              // final rate as a fraction of lr
  std::string schedule = "cosine";  // cosine | linear | wsd | constant
  int64_t warmup_steps = 100;
  int64_t schedule_steps = 0;   // length of the schedule; 0: train.steps
  double decay_fraction = 0.2;  // wsd: last part of the schedule that decays
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  // never on norms
  bool decay_embedding = true;
  double grad_clip = 1.0;                // largest global gradient norm; 0: no clipping
  std::string state = "8bit";            // 8bit | fp32
  std::string embedding_state = "fp32";  // 8bit | fp32; embedding and untied head
  int64_t min_8bit_size = 4096;          // smaller tensors keep fp32 states
  std::string master = "stochastic";     // stochastic | split | fp32
  int64_t max_skips = 10;                // non-finite gradients in a row that stop the run
};

}  // namespace narrowgauge
