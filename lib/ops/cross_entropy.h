#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

inline constexpr int32_t kIgnoreIndex = -100;

struct CrossEntropyOptions {
  int64_t vocab = 0;      // real classes; columns beyond are padding: outside the sum, gradient zero
  double z_loss = 0.0;    // weight of lse^2 added to every counted row's loss
  bool gradient = true;   // overwrite the logits with their gradient
};

// Row-wise softmax cross-entropy, in place. logits (rows, P >= vocab), bf16 or fp32; targets (rows),
// int32, kIgnoreIndex rows have loss 0 and gradient 0. losses (rows, fp32) = lse - logit[target] +
// z_loss * lse^2; lse (rows, fp32; 0 for ignored rows). The gradient is multiplied by *scale (fp32 scalar on
// the same device). A target outside [0, vocab) that is not kIgnoreIndex gives a NaN loss.
void cross_entropy_in_place(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& lse,
                            const at::Tensor& targets, const at::Tensor& scale,
                            const CrossEntropyOptions& options);

}  // namespace narrowgauge::ops
