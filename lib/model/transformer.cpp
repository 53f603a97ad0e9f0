#include "lib/model/transformer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <stdexcept>

#include "lib/base/error.h"
#include "lib/model/ends.h"
#include "lib/model/layer.h"
#include "lib/model/pass.h"
#include "lib/ops/device.h"
#include "lib/ops/linear.h"

namespace narrowgauge::model {
namespace {

constexpr size_t kLayoutsAtOnce = 16;

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
  if (options.max_context <= 0 || options.micro_batch <= 0)
    throw std::invalid_argument("max_context and micro_batch must be positive");
  return config;
}

ops::AttentionChoice choose_kernel(const ModelConfig& config, const TransformerOptions& options) {
  try {
    return ops::choose_attention(options.attention,
                                 attention_job(config, options, options.micro_batch, options.max_context));
  } catch (const std::invalid_argument& error) {
    throw UserError(fmt::format("train.attention: {}", error.what()));
  }
}

}  // namespace

ops::AttentionJob attention_job(const ModelConfig& config, const TransformerOptions& options, int64_t batch,
                                int64_t context) {
  return {.device = options.device,
          .dtype = options.dtype,
          .shape = {.batch = batch,
                    .context = context,
                    .heads = config.heads,
                    .kv_heads = config.kv_head_count(),
                    .head_dim = config.head_size()},
          .deterministic = options.deterministic,
          .document_mask = options.document_mask,
          .workspace_limit = options.attention_workspace,
          .timing = options.time_attention};
}

Transformer::Transformer(const ModelConfig& config, const TransformerOptions& options)
    : config_(checked(config, options)),
      options_(options),
      attention_(choose_kernel(config, options)),
      arena_(config, options.dtype, options.device),
      rope_(ops::make_rope_table(options.max_context, config.head_size(), config.rope_theta, options.device)),
      slab_(options.device) {
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

ops::Attention Transformer::attention(int64_t batch, int64_t context) const {
  const ops::AttentionJob job = attention_job(config_, options_, batch, context);
  return {.shape = job.shape,
          .kernel = ops::usable_kernel(attention_.kernel, job),
          .deterministic = job.deterministic,
          .documents = {},
          .workspace_limit = job.workspace_limit};
}

ops::AttentionScratch Transformer::attention_scratch(int64_t batch) const {
  return ops::attention_scratch(attention(batch, options_.max_context), options_.device);
}

std::shared_ptr<const layout::Layout> Transformer::layout_of(layout::Purpose purpose, int64_t batch,
                                                             int64_t context) {
  const std::array<int64_t, 3> key{static_cast<int64_t>(purpose), batch, context};
  if (const auto found = layouts_.find(key); found != layouts_.end()) return found->second;
  const ops::AttentionScratch scratch = ops::attention_scratch(attention(batch, context), options_.device);
  layout::StepShape step{
      .purpose = purpose,
      .batch = batch,
      .context = context,
      .levels = {},
      .element = options_.dtype == at::kBFloat16 ? layout::Element::bf16 : layout::Element::fp32,
      .loss_chunk = options_.loss_chunk,
      .attention_scratch = scratch.forward,
      .attention_backward_scratch = scratch.backward,
      .limits = std::nullopt};
  for (const auto& layer : layers_) step.levels.push_back(layer->level());
  if (options_.device.is_cuda()) step.limits = ops::limits_of(arena_.weights());
  if (layouts_.size() == kLayoutsAtOnce) layouts_.clear();
  return layouts_[key] = std::make_shared<const layout::Layout>(config_, step);
}

void Transformer::reserve(layout::Purpose purpose, int64_t batch, int64_t context) {
  slab_.reserve(layout_of(purpose, batch, context)->bytes());
}

void Transformer::replan(const std::vector<RecomputeLevel>& levels, int64_t loss_chunk) {
  TransformerOptions options = options_;
  options.recompute = levels;
  options.loss_chunk = loss_chunk;
  checked(config_, options);
  options_ = options;
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i]->set_level(level_of(options_, i));
  layouts_.clear();
  slab_.release();
}

std::shared_ptr<Pass> Transformer::begin(layout::Purpose purpose, int64_t batch, int64_t context) {
  const int64_t number = slab_.begin(layout_of(purpose, batch, context));
  return std::make_shared<Pass>(Pass{.attention = attention(batch, context),
                                     .rope = rope_,
                                     .positions = {},
                                     .eps = config_.norm_eps,
                                     .slab = &slab_,
                                     .number = number});
}

at::Tensor Transformer::hidden(const Batch& batch, const std::shared_ptr<Pass>& pass) {
  pass->attention.documents = batch.documents;
  pass->positions = batch.positions;
  Stream stream{.residual = embed(leaf("embedding.weight"), batch.tokens.reshape({-1}), batch.order, pass),
                .delta = {}};
  for (const auto& layer : layers_) stream = layer->forward(stream, pass);
  return final_norm(leaf("norm.weight"), stream, pass);
}

ops::LossSums Transformer::loss(const Batch& batch, const at::Tensor& scale) {
  const bool gradient = at::GradMode::is_enabled();
  const Leaf head = leaf(head_name());
  ops::LossOptions options = options_.loss;
  if (!gradient) options.z_loss = 0;
  const auto pass = begin(gradient ? layout::Purpose::train : layout::Purpose::evaluate, batch.tokens.size(0),
                          batch.tokens.size(1));
  return head_loss(head, hidden(batch, pass), batch.targets.reshape({-1}), scale, options, pass);
}

at::Tensor Transformer::logits(const at::Tensor& hidden) const {
  const at::Tensor weight = arena_.weight(arena_.slot(head_name()));
  at::Tensor out = at::empty({hidden.size(0), weight.size(0)}, weight.options());
  ops::linear_forward(out, hidden, weight);
  return out;
}

at::Tensor Transformer::forward(const at::Tensor& tokens) {
  return forward(Batch{.tokens = tokens, .targets = {}, .positions = {}, .documents = {}});
}

at::Tensor Transformer::forward(const Batch& batch) {
  const at::NoGradGuard no_gradient;
  const auto pass = begin(layout::Purpose::evaluate, batch.tokens.size(0), batch.tokens.size(1));
  return logits(hidden(batch, pass));
}

}  // namespace narrowgauge::model
