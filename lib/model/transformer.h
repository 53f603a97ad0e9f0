#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "lib/config/config.h"
#include "lib/model/parameters.h"
#include "lib/ops/attention.h"
#include "lib/ops/linear_cross_entropy.h"
#include "lib/ops/rope.h"

namespace narrowgauge::model {

class LayerImpl;  // lib/model/layer.h

// One micro-batch on the model's device.
struct Batch {
  at::Tensor tokens;         // (batch, context) int32
  at::Tensor targets;        // (batch, context) int32, ops::kIgnoreIndex where not counted
  at::Tensor positions;      // (batch * context) int32; undefined: 0 .. context - 1 in every sequence
  ops::Documents documents;  // undefined cu_seqlens: attention over the whole sequence
};

struct TransformerOptions {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  int64_t max_context = 0;                // rows of the RoPE table
  std::vector<RecomputeLevel> recompute;  // one a layer, or one for all
  std::string attention = "auto";
  bool deterministic = false;
  bool document_mask = false;
  ops::LossOptions loss;                  // vocab 0: the model's
};

// Decoder: embedding, layers, final norm, output projection. Parameters are views of the arena and are
// registered under their names, so parameters() and named_parameters() work as usual; the gradients of a
// backward pass are accumulated straight into the arena's gradient views.
class Transformer : public torch::nn::Module {
 public:
  Transformer(const ModelConfig& config, const TransformerOptions& options);

  // tokens (batch, context) int32 -> logits (batch * context, V), for small inputs: evaluation of golden
  // models and tests. No gradient.
  at::Tensor forward(const at::Tensor& tokens);

  // Sum of the loss over the micro-batch's counted tokens as an autograd scalar (fp32) plus by-products.
  // With gradients enabled, backward() of `loss` adds d(loss * scale) to the arena; scale is an fp32 scalar
  // tensor on the device (1 / counted tokens of the global batch). Without, nothing is kept.
  ops::LossSums loss(const Batch& batch, const at::Tensor& scale);

  // The final hidden state before the output projection, normalised: (batch * context, H).
  at::Tensor hidden(const Batch& batch);

  [[nodiscard]] ParameterArena& arena() { return arena_; }
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const TransformerOptions& options() const { return options_; }
  [[nodiscard]] ops::AttentionKernel attention_kernel() const;  // for the shape of the last or next batch
  [[nodiscard]] at::Tensor head_weight() const;                 // (V, H), the embedding when tied

 private:
  ModelConfig config_;
  TransformerOptions options_;
  ParameterArena arena_;
  std::vector<std::shared_ptr<LayerImpl>> layers_;
  ops::RopeTable rope_;
};

}  // namespace narrowgauge::model
