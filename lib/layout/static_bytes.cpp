#include "lib/layout/static_bytes.h"

#include "cuda/adamw.h"
#include "lib/layout/parameters.h"

namespace narrowgauge::layout {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t master_bytes(const OptimConfig& optim, Element weights) {
  if (weights == Element::fp32 || optim.master == "stochastic") return 0;
  return optim.master == "split" ? int64_t{sizeof(int16_t)} : kFloat;
}

}  // namespace

StaticBytes static_bytes(const ModelConfig& model, const OptimConfig& optim, Element weights,
                         Element gradients) {
  const ParameterPlan plan = plan_parameters(model);
  int64_t eight_bit = 0;
  int64_t fp32 = 0;
  for (const UpdateRange& range : update_ranges(plan.slots, optim)) {
    (range.eight_bit ? eight_bit : fp32) += range.end - range.begin;
  }
  return {.weights = plan.count() * element_bytes(weights),
          .gradients = plan.grad_count * element_bytes(gradients),
          .gradients32 = plan.grad32_count * kFloat,
          .codes = 2 * eight_bit,
          .scales = 2 * eight_bit / cuda::kAdamWBlock * kFloat,
          .states32 = 2 * fp32 * kFloat,
          .master = plan.count() * master_bytes(optim, weights)};
}

}  // namespace narrowgauge::layout
