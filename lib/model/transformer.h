#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "lib/config/config.h"
#include "lib/model/kv_cache.h"
#include "lib/model/parameters.h"
#include "lib/ops/attention.h"
#include "lib/ops/linear_cross_entropy.h"
#include "lib/ops/rope.h"

namespace narrowgauge::model {

class LayerImpl;  // lib/model/layer.h
struct Pass;      // lib/model/attention_segment.h
struct Leaf;      // lib/model/ends.h

// One micro-batch on the model's device.
struct Batch {
  at::Tensor tokens;         // (batch, context) int32
  at::Tensor targets;        // (batch, context) int32, ops::kIgnoreIndex where not counted
  at::Tensor positions;      // (batch * context) int32; undefined: 0 .. context - 1 in every sequence
  ops::Documents documents;  // undefined cu_seqlens: attention over the whole sequence
  // (batch * context) int32: ops::token_order of the tokens, for the embedding's gradient on CUDA; undefined:
  // it is found there.
  at::Tensor order{};
};

struct TransformerOptions {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  int64_t max_context = 0;                // rows of the RoPE table
  std::vector<RecomputeLevel> recompute;  // one a layer, or one for all; empty: block
  std::string attention = "auto";         // train.attention
  bool deterministic = false;
  bool document_mask = false;
  ops::LossOptions loss;  // vocab 0: the model's
};

// Decoder: embedding, layers, final norm, output projection. Parameters are views of the arena and are
// registered under their names, so parameters() and named_parameters() work as usual; the gradients of a
// backward pass are accumulated straight into the arena's gradient views. Built on its device in its dtype:
// moving it with Module::to would part it from the arena. Weights are zero until initialised or loaded.
class Transformer : public torch::nn::Module {
 public:
  // UserError: train.attention names a kernel that this device or model cannot use. std::invalid_argument:
  // the number of recompute levels is neither 1 nor the number of layers; max_context is not positive.
  Transformer(const ModelConfig& config, const TransformerOptions& options);
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  // tokens (batch, context) int32 -> logits (batch * context, V), for small inputs: evaluation of golden
  // models and tests. No gradient.
  at::Tensor forward(const at::Tensor& tokens);

  // Sum of the loss over the micro-batch's counted tokens as an autograd scalar (fp32) plus by-products.
  // With gradients enabled, backward() of `loss` adds d(loss * scale) to the arena; scale is an fp32 scalar
  // tensor on the device (1 / counted tokens of the global batch). Without, nothing is kept. Forward has
  // already added the head's share, and backward() takes the incoming gradient to be 1: it runs once, on
  // `loss` itself.
  ops::LossSums loss(const Batch& batch, const at::Tensor& scale);

  // The final hidden state before the output projection, normalised: (batch * context, H).
  at::Tensor hidden(const Batch& batch);

  // Appends tokens (n) int32 of one sequence to the cache and returns the logits (1, V) that follow the last
  // of them. The cache is empty, or n is 1; at most max_context positions. No gradient.
  at::Tensor decode(const at::Tensor& tokens, KeyValueCache& cache);
  [[nodiscard]] KeyValueCache make_cache() const;

  [[nodiscard]] ParameterArena& arena() { return arena_; }
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const TransformerOptions& options() const { return options_; }
  [[nodiscard]] ops::AttentionKernel attention_kernel() const { return kernel_; }
  [[nodiscard]] at::Tensor head_weight() const;  // (V, H), the embedding when tied

 private:
  [[nodiscard]] Leaf leaf(const std::string& name) const;
  [[nodiscard]] std::string head_name() const;
  [[nodiscard]] Pass make_pass(int64_t batch, int64_t context) const;
  at::Tensor logits(const at::Tensor& hidden) const;

  ModelConfig config_;
  TransformerOptions options_;
  ParameterArena arena_;
  std::vector<std::shared_ptr<LayerImpl>> layers_;
  ops::RopeTable rope_;
  ops::AttentionKernel kernel_;
};

}  // namespace narrowgauge::model
