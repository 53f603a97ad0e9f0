#include "lib/model/feed_forward_segment.h"

#include "lib/ops/linear.h"
#include "lib/ops/swiglu.h"

namespace narrowgauge::model {
namespace {

using layout::Name;

void project(const FeedForwardWeights& weights, const Place& place, FeedForwardKept& kept) {
  if (kept.gate_up.defined()) return;
  normalise(kept.entry, weights.norm, place, layout::kFeedForwardEntry);
  kept.gate_up = place.take(Name::gate_up);
  ops::linear_forward(kept.gate_up, kept.entry.normed, weights.gate_up);
}

}  // namespace

at::Tensor feed_forward_forward(const FeedForwardWeights& weights, const Place& place, layout::Kept keep,
                                FeedForwardKept& kept) {
  project(weights, place, kept);
  if (!keep.norms) kept.entry.normed.reset();
  kept.product = place.take(Name::product);
  ops::swiglu_forward(kept.product, kept.gate_up);
  if (!keep.gate_up) kept.gate_up.reset();
  at::Tensor out = place.take(Name::ffn_delta);
  ops::linear_forward(out, kept.product, weights.down);
  if (!keep.product) kept.product.reset();
  if (!keep.attention) kept.entry = {};
  return out;
}

at::Tensor feed_forward_backward(const FeedForwardWeights& weights, const FeedForwardWeights& gradients,
                                 const Place& place, FeedForwardKept& kept, const at::Tensor& dresidual,
                                 const at::Tensor& dout) {
  project(weights, place, kept);

  const at::Tensor dproduct = place.take(Name::dproduct);
  ops::linear_input_grad(dproduct, dout, weights.down);
  const at::Tensor dgate_up = kept.gate_up;  // in place
  at::Tensor recomputed;
  if (!kept.product.defined()) recomputed = kept.product = place.take(Name::product);
  ops::swiglu_backward(dgate_up, recomputed, dproduct, kept.gate_up);
  ops::linear_weight_grad(gradients.down, dout, kept.product);

  at::Tensor dmiddle = place.take(Name::dmiddle);
  ops::linear_input_grad(dmiddle, dgate_up, weights.gate_up);
  enter_backward(dmiddle, kept.entry, weights.norm, gradients.norm, dmiddle, dresidual, place,
                 layout::kFeedForwardEntry);
  ops::linear_weight_grad(gradients.gate_up, dgate_up, kept.entry.normed);
  kept = {};
  return dmiddle;
}

}  // namespace narrowgauge::model
