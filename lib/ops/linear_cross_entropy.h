#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

struct LossOptions {
  int64_t vocab = 0;  // real classes, <= weight.size(0)
  double z_loss = 0.0;
};

// Sums over counted tokens, fp32 scalars on the device; no host synchronisation.
struct LossSums {
  at::Tensor loss;         // cross-entropy + z_loss * lse_squared
  at::Tensor lse;          // log-sum-exp
  at::Tensor lse_squared;  // its square
};

// The memory of the caller that the loss works in, all on hidden's device.
struct LossBuffers {
  at::Tensor losses;   // (tokens) fp32
  at::Tensor lse;      // (tokens) fp32
  at::Tensor sums;     // (3) fp32: those of LossSums, views of it
  at::Tensor logits;   // (chunk, V) of hidden's dtype; fast when the rows begin at multiples of 16 bytes
  at::Tensor dhidden;  // as hidden, and may be hidden itself; undefined: no gradients
};

// Output projection and cross-entropy in chunks of as many tokens as buffers.logits has rows, so that full
// logits never exist. hidden (tokens, H), weight (V, H), targets (tokens, int32). When buffers.dhidden is
// defined, the gradients are produced here, multiplied by *scale (fp32 scalar tensor: 1 / counted tokens of
// the global batch): dhidden is written and dweight (V, H, fp32) accumulated. The loss is therefore terminal:
// its own incoming gradient is taken to be 1.
LossSums linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                              const at::Tensor& scale, const LossBuffers& buffers, const at::Tensor& dweight,
                              const LossOptions& options);

}  // namespace narrowgauge::ops
