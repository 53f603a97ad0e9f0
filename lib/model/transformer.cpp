#include "lib/model/transformer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <stdexcept>

#include "lib/base/error.h"
#include "lib/model/buffers.h"
#include "lib/model/ends.h"
#include "lib/model/layer.h"
#include "lib/ops/linear.h"

namespace narrowgauge::model {
namespace {

RecomputeLevel level_of(const TransformerOptions& options, size_t layer) {
  const auto& levels = options.recompute;
  if (levels.empty()) return RecomputeLevel::block;
  return levels.size() == 1 ? levels[0] : levels.at(layer);
}

const ModelConfig& checked(const ModelConfig& config, const TransformerOptions& options) {
  const size_t levels = options.recompute.size();
  if (levels > 1 && levels != static_cast<size_t>(config.layers)) {
    throw std::invalid_argument(
        fmt::format("{} recompute levels for {} layers: give one, or one a layer", levels, config.layers));
  }
  if (options.max_context <= 0) throw std::invalid_argument("max_context must be positive");
  return config;
}

ops::AttentionShape attention_shape(const ModelConfig& config, int64_t batch, int64_t context) {
  return {.batch = batch,
          .context = context,
          .heads = config.heads,
          .kv_heads = config.kv_head_count(),
          .head_dim = config.head_size()};
}

ops::AttentionKernel choose_kernel(const ModelConfig& config, const TransformerOptions& options) {
  try {
    return ops::choose_attention(options.attention, options.device, options.dtype,
                                 attention_shape(config, 1, options.max_context), options.deterministic,
                                 options.document_mask);
  } catch (const std::invalid_argument& error) {
    throw UserError(fmt::format("train.attention: {}", error.what()));
  }
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const TransformerOptions& options)
    : config_(checked(config, options)),
      options_(options),
      arena_(config, options.dtype, options.device),
      rope_(ops::make_rope_table(options.max_context, config.head_size(), config.rope_theta, options.device)),
      kernel_(choose_kernel(config, options)) {
  if (options_.loss.vocab == 0) options_.loss.vocab = config.vocab_size;
  const auto add = [&](const std::string& name) {
    register_dotted(*this, name, arena_.parameter(arena_.slot(name)));
  };
  add("embedding.weight");
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
  for (int64_t i = 0; i < config.layers; ++i) {
    auto layer = std::make_shared<LayerImpl>(arena_, i, level_of(options_, static_cast<size_t>(i)));
    layers_.push_back(layers->register_module(std::to_string(i), layer));
  }
  add("norm.weight");
  if (!config.tie_embeddings) add("head.weight");
}

std::string Transformer::head_name() const {
  return config_.tie_embeddings ? "embedding.weight" : "head.weight";
}

Leaf Transformer::leaf(const std::string& name) const {
  const ParameterSlot& slot = arena_.slot(name);
  Leaf leaf{.parameter = arena_.parameter(slot), .gradient = arena_.gradient(slot)};
  if (at::GradMode::is_enabled() && !leaf.gradient.defined()) {
    throw std::logic_error("allocate_gradients() comes before a pass with gradients enabled");
  }
  return leaf;
}

at::Tensor Transformer::head_weight() const { return arena_.weight(arena_.slot(head_name())); }

Pass Transformer::make_pass(int64_t batch, int64_t context) const {
  return {.shape = attention_shape(config_, batch, context),
          .kernel = kernel_,
          .documents = {},
          .rope = rope_,
          .positions = {},
          .eps = config_.norm_eps};
}

at::Tensor Transformer::hidden(const Batch& batch) {
  const auto pass = std::make_shared<Pass>(make_pass(batch.tokens.size(0), batch.tokens.size(1)));
  pass->documents = batch.documents;
  pass->positions = batch.positions;
  Stream stream{.residual = embed(leaf("embedding.weight"), batch.tokens.reshape({-1}), batch.order),
                .delta = {}};
  for (const auto& layer : layers_) stream = layer->forward(stream, pass);
  return final_norm(leaf("norm.weight"), stream, config_.norm_eps);
}

ops::LossSums Transformer::loss(const Batch& batch, const at::Tensor& scale) {
  const at::Tensor last = hidden(batch);
  return head_loss(leaf(head_name()), last, batch.targets.reshape({-1}), scale, options_.loss);
}

at::Tensor Transformer::logits(const at::Tensor& hidden) const {
  const at::Tensor weight = head_weight();
  at::Tensor out = take({hidden.size(0), weight.size(0)}, hidden);
  ops::linear_forward(out, hidden, weight);
  return out;
}

at::Tensor Transformer::forward(const at::Tensor& tokens) {
  const at::NoGradGuard no_gradient;
  return logits(hidden({.tokens = tokens, .targets = {}, .positions = {}, .documents = {}}));
}

}  // namespace narrowgauge::model
