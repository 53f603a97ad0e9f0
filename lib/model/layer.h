#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/model/attention_segment.h"
#include "lib/model/feed_forward_segment.h"
#include "lib/model/kv_cache.h"
#include "lib/model/parameters.h"

namespace narrowgauge::model {

// Weights of a layer, or the gradients that are accumulated for them.
struct LayerWeights {
  AttentionWeights attention;
  FeedForwardWeights feed_forward;
};

// What one layer's forward leaves for its backward.
struct LayerKept {
  AttentionKept attention;
  FeedForwardKept feed_forward;
};

// The residual stream and the last segment's output, which the next segment adds to it (fused with its norm).
// Undefined delta: nothing to add.
struct Stream {
  at::Tensor residual;
  at::Tensor delta;
};

// A layer without autograd. Undefined stream.delta: the layer's input is stream.residual alone.
Stream layer_forward(const LayerWeights& weights, const Place& place, RecomputeLevel level,
                     const Stream& stream, LayerKept& kept);

// Gradient of the layer's residual and of its delta alike; `kept` is used up, recomputing what is missing.
at::Tensor layer_backward(const LayerWeights& weights, const LayerWeights& gradients, const Place& place,
                          LayerKept& kept, const at::Tensor& dresidual, const at::Tensor& ddelta);

// One decoder layer as a module: its parameters are the arena's, registered as attention_norm.weight, ...
class LayerImpl : public torch::nn::Module {
 public:
  // `arena` outlives the layer.
  LayerImpl(const ParameterArena& arena, int64_t index, RecomputeLevel level);

  // With gradients enabled, the result is connected to autograd and backward accumulates into the arena's
  // gradients; otherwise nothing is kept.
  Stream forward(const Stream& stream, const std::shared_ptr<const Pass>& pass);

  // One sequence, no gradient: row t of the stream has position start + t. Appends its keys and values to the
  // cache and attends over all before. Either start is 0 or there is one row.
  Stream decode(const Stream& stream, const Pass& pass, int64_t start, const LayerCache& cache) const;

  [[nodiscard]] RecomputeLevel level() const { return level_; }
  void set_level(RecomputeLevel level) { level_ = level; }  // of passes that begin from now on
  [[nodiscard]] const LayerWeights& weights() const { return weights_; }
  // Views of the arena; std::logic_error before they are allocated.
  const LayerWeights& gradients();

 private:
  const ParameterArena& arena_;
  int64_t index_;
  std::string prefix_;
  RecomputeLevel level_;
  std::vector<at::Tensor> leaves_;
  LayerWeights weights_;
  LayerWeights gradients_;
};

// Registers `parameter` under a dotted name, "norm.weight" as parameter "weight" of submodule "norm".
void register_dotted(torch::nn::Module& module, const std::string& name, const at::Tensor& parameter);

}  // namespace narrowgauge::model
