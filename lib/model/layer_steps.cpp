// The arithmetic of a layer: both segments in order, forward and backward. A stop request interrupts it
// between two segments.
#include "lib/base/interruption.h"
#include "lib/model/layer.h"

namespace narrowgauge::model {

Stream layer_forward(const LayerWeights& weights, const Place& place, RecomputeLevel level,
                     const Stream& stream, LayerKept& kept) {
  interruption_point();
  const layout::Kept keep = layout::kept(level);
  kept.attention.entry =
      enter(stream.residual, stream.delta, weights.attention.norm, place, layout::kAttentionEntry);
  const at::Tensor attended = attention_output(weights.attention, place, kept.attention);
  interruption_point();
  kept.feed_forward.entry = enter(kept.attention.entry.input, attended, weights.feed_forward.norm, place,
                                  layout::kFeedForwardEntry);
  attention_drop(place, keep, kept.attention);
  at::Tensor residual = kept.feed_forward.entry.input;
  at::Tensor delta = feed_forward_forward(weights.feed_forward, place, keep, kept.feed_forward);
  return {residual, delta};
}

at::Tensor layer_backward(const LayerWeights& weights, const LayerWeights& gradients, const Place& place,
                          LayerKept& kept, const at::Tensor& dresidual, const at::Tensor& ddelta) {
  interruption_point();
  if (!kept.feed_forward.entry.input.defined()) {
    const at::Tensor attended = attention_output(weights.attention, place, kept.attention);
    kept.feed_forward.entry = enter(kept.attention.entry.input, attended, weights.feed_forward.norm, place,
                                    layout::kFeedForwardEntry);
  }
  const at::Tensor dmiddle = feed_forward_backward(weights.feed_forward, gradients.feed_forward, place,
                                                   kept.feed_forward, dresidual, ddelta);
  interruption_point();
  return attention_backward(weights.attention, gradients.attention, place, kept.attention, dmiddle, dmiddle);
}

}  // namespace narrowgauge::model
