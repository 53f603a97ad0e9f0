#pragma once
#include <array>

#include "lib/plan/choice.h"
#include "lib/plan/rates.h"

namespace narrowgauge::plan {

// Seconds of one optimizer step.
struct StepTime {
  double products = 0;     // of layers and head, recomputed ones included
  double attention = 0;    // recomputed passes included
  double elementwise = 0;  // norms, RoPE, SwiGLU
  double loss = 0;         // without its products
  double embedding = 0;
  double optimizer = 0;
  double gaps = 0;       // between kernels
  double recompute = 0;  // of the above

  [[nodiscard]] double total() const {
    return products + attention + elementwise + loss + embedding + optimizer + gaps;
  }
  void add(const StepTime& other, double times);
};

// FLOPs that one trained token needs, forward and backward: 6 x parameters + 6 x layers x hidden x context
// (design: causal attention counted once, hidden is the width of the queries). Recomputation is never
// counted.
double model_flops_per_token(const ModelConfig& config, int64_t context);

class TimeModel {
 public:
  // `rates` must outlive it.
  TimeModel(const Config& config, const Rates& rates) : config_(config), rates_(rates) {}

  [[nodiscard]] StepTime step(const Choice& choice) const;
  // A step is base() + the sum of level() over the layers, both for all its micro-batches.
  [[nodiscard]] StepTime base(int64_t micro_batch, int64_t loss_chunk) const;  // nothing recomputed
  [[nodiscard]] StepTime level(int64_t micro_batch, RecomputeLevel level) const;

  [[nodiscard]] double tokens_per_second(double step_seconds) const;

 private:
  Config config_;
  const Rates& rates_;
};

}  // namespace narrowgauge::plan
