#include "tests/model/reference_model.h"

#include <ATen/Functions.h>

#include <cmath>
#include <limits>

#include "lib/ops/cross_entropy.h"

namespace narrowgauge::test {
namespace {

at::Tensor positions_of(const model::Batch& batch) {
  if (batch.positions.defined()) return batch.positions.view(batch.tokens.sizes());
  return at::arange(batch.tokens.size(1), batch.tokens.options()).expand(batch.tokens.sizes());
}

// (batch, 1, context, context): true where a query must not look.
at::Tensor mask_of(const model::Batch& batch) {
  const int64_t context = batch.tokens.size(1);
  const at::Tensor index = at::arange(context, batch.tokens.options());
  at::Tensor mask = index.unsqueeze(0).gt(index.unsqueeze(1)).unsqueeze(0);
  if (batch.documents.cu_seqlens.defined()) {
    // A document begins where the position is 0.
    const at::Tensor document = positions_of(batch).eq(0).cumsum(1);
    mask = mask.logical_or(document.unsqueeze(1).ne(document.unsqueeze(2)));
  }
  return mask.unsqueeze(1);
}

}  // namespace

ReferenceModel::ReferenceModel(const model::Transformer& model, at::Device device, at::ScalarType dtype)
    : config_(model.config()), wide_(dtype == at::kDouble ? at::kDouble : at::kFloat) {
  for (const auto& item : model.named_parameters()) {
    weights_[item.key()] = item.value().detach().to(device, dtype, false, /*copy=*/true).requires_grad_(true);
  }
}

at::Tensor ReferenceModel::norm(const at::Tensor& x, const std::string& name) const {
  const at::Tensor wide = x.to(wide_);
  const at::Tensor normed = wide * at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + config_.norm_eps);
  return normed.to(x.scalar_type()) * weights_.at(name);
}

at::Tensor ReferenceModel::rotate(const at::Tensor& x, const at::Tensor& positions) const {
  const int64_t half = config_.head_size() / 2;
  const at::Tensor exponent =
      at::arange(half, positions.options().dtype(at::kDouble)) / (-1.0 * static_cast<double>(half));
  const at::Tensor angle = positions.unsqueeze(-1) * at::pow(config_.rope_theta, exponent);
  const at::Tensor both = at::cat({angle, angle}, -1).unsqueeze(1);  // (batch, 1, context, head_dim)
  const at::Tensor turned = at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
  return x * both.cos().to(x.scalar_type()) + turned * both.sin().to(x.scalar_type());
}

at::Tensor ReferenceModel::layer(const at::Tensor& x, int64_t index, const model::Batch& batch) const {
  const std::string prefix = "layers." + std::to_string(index) + ".";
  const int64_t sequences = batch.tokens.size(0);
  const int64_t context = batch.tokens.size(1);
  const int64_t kv_heads = config_.kv_head_count();
  const int64_t group = config_.heads / kv_heads;
  const at::Tensor qkv =
      at::linear(norm(x, prefix + "attention_norm.weight"), weights_.at(prefix + "qkv.weight"))
          .view({sequences, context, config_.heads + 2 * kv_heads, config_.head_size()})
          .transpose(1, 2);
  at::Tensor q = qkv.narrow(1, 0, config_.heads);
  at::Tensor k = qkv.narrow(1, config_.heads, kv_heads);
  const at::Tensor v = qkv.narrow(1, config_.heads + kv_heads, kv_heads).repeat_interleave(group, 1);
  if (config_.qk_norm) {
    q = norm(q, prefix + "q_norm.weight");
    k = norm(k, prefix + "k_norm.weight");
  }
  q = rotate(q, positions_of(batch));
  k = rotate(k, positions_of(batch)).repeat_interleave(group, 1);
  at::Tensor scores =
      at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(config_.head_size()));
  scores = scores.masked_fill(mask_of(batch), -std::numeric_limits<double>::infinity());
  const at::Tensor probabilities = at::softmax(scores, -1, wide_).to(x.scalar_type());
  const at::Tensor attended =
      at::matmul(probabilities, v).transpose(1, 2).reshape({-1, config_.query_width()});
  const at::Tensor middle = x + at::linear(attended, weights_.at(prefix + "attention_out.weight"));

  const at::Tensor gate_up =
      at::linear(norm(middle, prefix + "ffn_norm.weight"), weights_.at(prefix + "gate_up.weight"));
  const at::Tensor gate = gate_up.narrow(1, 0, config_.ffn_size);
  const at::Tensor up = gate_up.narrow(1, config_.ffn_size, config_.ffn_size);
  return middle + at::linear(at::silu(gate) * up, weights_.at(prefix + "down.weight"));
}

at::Tensor ReferenceModel::logits(const model::Batch& batch) const {
  at::Tensor x = at::embedding(weights_.at("embedding.weight"), batch.tokens.reshape({-1}));
  for (int64_t i = 0; i < config_.layers; ++i) x = layer(x, i, batch);
  return at::linear(norm(x, "norm.weight"),
                    weights_.at(config_.tie_embeddings ? "embedding.weight" : "head.weight"));
}

Result ReferenceModel::train_pass(const model::Batch& batch, double z_loss) const {
  const at::Tensor scores = logits(batch).to(wide_);
  const at::Tensor targets = batch.targets.reshape({-1}).to(at::kLong);
  const at::Tensor lse = at::logsumexp(scores, -1);
  const at::Tensor chosen = scores.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
  const at::Tensor losses = (lse - chosen + z_loss * lse.square()) * targets.ne(ops::kIgnoreIndex);
  const at::Tensor loss = losses.sum() / static_cast<double>(counted(batch));
  for (const auto& [name, weight] : weights_) at::Tensor(weight).mutable_grad().reset();
  loss.backward();
  Result result{.loss = loss.detach().to(at::kCPU, at::kDouble), .gradients = {}};
  for (const auto& [name, weight] : weights_) result.gradients[name] = weight.grad().to(at::kCPU);
  return result;
}

}  // namespace narrowgauge::test
