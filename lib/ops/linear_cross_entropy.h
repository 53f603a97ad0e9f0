#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

struct LossOptions {
  int64_t vocab = 0;     // real classes, <= weight.size(0)
  int64_t chunk = 4096;  // tokens whose logits exist at once
  double z_loss = 0.0;
};

// Sums over counted tokens, fp32 scalars on the device; no host synchronisation.
struct LossSums {
  at::Tensor loss;         // cross-entropy + z_loss * lse_squared
  at::Tensor lse;          // log-sum-exp
  at::Tensor lse_squared;  // its square
};

// Output projection and cross-entropy in chunks of tokens, so that full logits never exist. hidden
// (tokens, H), weight (V, H), targets (tokens, int32). When dhidden is defined, the gradients are produced
// here, multiplied by *scale (fp32 scalar tensor: 1 / counted tokens of the global batch): dhidden (tokens,
// H) is written and dweight (V, H, fp32) accumulated. The loss is therefore terminal: its own
// incoming gradient is taken to be 1.
LossSums linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                              const at::Tensor& scale, const at::Tensor& dhidden, const at::Tensor& dweight,
                              const LossOptions& options);

}  // namespace narrowgauge::ops
