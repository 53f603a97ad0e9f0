#pragma once
#include <ATen/core/Tensor.h>

#include "lib/layout/recompute.h"
#include "lib/model/residual_norm.h"

namespace narrowgauge::model {

// norm -> gate-up -> SwiGLU -> down. Plain functions without autograd of their own. All tensors come from the
// slab; lib/layout/step.cpp goes the same way on paper.

// Weights, or the gradients that are accumulated for them.
struct FeedForwardWeights {
  at::Tensor norm;     // (H)
  at::Tensor gate_up;  // (2F, H)
  at::Tensor down;     // (H, F)
};

// What forward leaves for backward; undefined: not kept.
struct FeedForwardKept {
  ResidualNorm entry;
  at::Tensor gate_up;  // (tokens, 2F)
  at::Tensor product;  // (tokens, F)
};

// Goes on from kept.entry, whose input and norm are there. Returns the segment's output (tokens, H), to be
// added to the residual stream by the next segment, and drops from `kept` what the level does not keep.
at::Tensor feed_forward_forward(const FeedForwardWeights& weights, const Place& place, layout::Kept keep,
                                FeedForwardKept& kept);

// Gradient of the segment's input stream, given the gradients of its two outputs: the stream itself
// (dresidual) and the output (dout). `kept` has at least entry.input and is used up: its tensors are
// overwritten.
at::Tensor feed_forward_backward(const FeedForwardWeights& weights, const FeedForwardWeights& gradients,
                                 const Place& place, FeedForwardKept& kept, const at::Tensor& dresidual,
                                 const at::Tensor& dout);

}  // namespace narrowgauge::model
