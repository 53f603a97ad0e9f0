#include "lib/model/feed_forward_segment.h"

#include "lib/model/buffers.h"
#include "lib/ops/linear.h"
#include "lib/ops/swiglu.h"

namespace narrowgauge::model {
namespace {

void project(const FeedForwardWeights& weights, FeedForwardKept& kept) {
  if (kept.gate_up.defined()) return;
  const at::Tensor& x = kept.entry.normed;
  kept.gate_up = take({x.size(0), weights.gate_up.size(0)}, x);
  ops::linear_forward(kept.gate_up, x, weights.gate_up);
}

}  // namespace

at::Tensor feed_forward_forward(const FeedForwardWeights& weights, Kept keep, FeedForwardKept& kept) {
  project(weights, kept);
  if (!keep.norms) kept.entry.normed.reset();
  kept.product = take({kept.gate_up.size(0), weights.down.size(1)}, kept.gate_up);
  ops::swiglu_forward(kept.product, kept.gate_up);
  if (!keep.gate_up) kept.gate_up.reset();
  at::Tensor out = take(kept.entry.input.sizes(), kept.entry.input);
  ops::linear_forward(out, kept.product, weights.down);
  if (!keep.product) kept.product.reset();
  if (!keep.attention) kept.entry = {};
  return out;
}

at::Tensor feed_forward_backward(const FeedForwardWeights& weights, const FeedForwardWeights& gradients,
                                 double eps, FeedForwardKept& kept, const at::Tensor& dresidual,
                                 const at::Tensor& dout) {
  normalise(kept.entry, weights.norm, eps);
  project(weights, kept);

  at::Tensor dproduct = take({dout.size(0), weights.down.size(1)}, dout);
  ops::linear_input_grad(dproduct, dout, weights.down);
  const at::Tensor dgate_up = kept.gate_up;  // in place
  at::Tensor recomputed;
  if (!kept.product.defined()) recomputed = kept.product = take(dproduct.sizes(), dproduct);
  ops::swiglu_backward(dgate_up, recomputed, dproduct, kept.gate_up);
  dproduct.reset();
  ops::linear_weight_grad(gradients.down, dout, kept.product);
  recomputed.reset();
  kept.product.reset();

  ops::linear_weight_grad(gradients.gate_up, dgate_up, kept.entry.normed);
  kept.entry.normed.reset();
  at::Tensor dinput = take(dout.sizes(), dout);
  ops::linear_input_grad(dinput, dgate_up, weights.gate_up);
  kept.gate_up.reset();
  enter_backward(dinput, kept.entry, weights.norm, gradients.norm, dinput, dresidual);
  return dinput;
}

}  // namespace narrowgauge::model
