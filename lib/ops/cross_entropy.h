#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

inline constexpr int32_t kIgnoreIndex = -100;

struct CrossEntropyOptions {
  int64_t vocab = 0;     // real classes; columns beyond are padding: outside the sum, gradient zero
  double z_loss = 0.0;   // weight of lse^2 added to every counted row's loss
  bool gradient = true;  // overwrite the logits with their gradient
};

// Row-wise softmax cross-entropy, in place. logits (rows, P >= vocab), bf16 or fp32, last dimension
// contiguous, rows may be strided (rows of 16-byte multiples are the fast ones); targets (rows), int32.
// losses (rows, fp32) = lse - logit[target] + z_loss * lse^2 with lse = log sum exp (rows, fp32). With
// options.gradient the logits become *scale * d losses / d logits, scale an fp32 scalar on the same device
// (else it may be undefined). A row whose target is kIgnoreIndex has loss, lse and gradient 0; any other
// target outside [0, vocab) gives loss and lse NaN and gradient 0. CUDA is asynchronous on the current
// stream. Wrong shapes or dtypes throw c10::Error.
void cross_entropy_in_place(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& lse,
                            const at::Tensor& targets, const at::Tensor& scale,
                            const CrossEntropyOptions& options);

}  // namespace narrowgauge::ops
