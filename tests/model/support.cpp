#include "tests/model/support.h"

#include <ATen/Functions.h>

#include <cmath>

#include "lib/model/init.h"
#include "lib/model/uniform.h"
#include "lib/ops/cross_entropy.h"

namespace narrowgauge::test {

ModelConfig tiny_config() {
  ModelConfig config;
  config.vocab_size = 67;
  config.layers = 2;
  config.hidden_size = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn_size = 40;
  config.tie_embeddings = false;
  config.init_std = 0.2;
  config.init = "normal";
  return config;
}

std::unique_ptr<model::Transformer> make_model(const ModelConfig& config, const Where& where,
                                               std::vector<RecomputeLevel> levels, at::ScalarType grad_dtype,
                                               bool document_mask) {
  model::TransformerOptions options;
  options.dtype = where.dtype;
  options.device = where.device;
  options.max_context = 128;
  options.recompute = std::move(levels);
  options.deterministic = true;
  options.document_mask = document_mask;
  options.loss_chunk = 20;
  auto model = std::make_unique<model::Transformer>(config, options);
  model::initialise(model->arena(), config, 1);
  for (const model::ParameterSlot& slot : model->arena().slots()) {
    if (slot.spec.kind != model::ParameterKind::norm) continue;
    const auto phase = static_cast<double>(slot.offset % 101);
    model->arena().weight(slot).copy_(1.0 + 0.3 * at::sin(at::arange(slot.count, at::kDouble) + phase));
  }
  model->arena().allocate_gradients(grad_dtype);
  return model;
}

model::Batch random_batch(const ModelConfig& config, int64_t batch, int64_t context, at::Device device,
                          uint64_t seed) {
  const at::Tensor tokens = at::empty({batch, context}, at::kInt);
  const at::Tensor targets = at::empty({batch, context}, at::kInt);
  const auto vocab = static_cast<uint32_t>(config.vocab_size);
  for (int64_t i = 0; i < batch * context; ++i) {
    const cuda::Random128 bits = cuda::philox(seed, static_cast<uint64_t>(i), 0);
    tokens.data_ptr<int32_t>()[i] = static_cast<int32_t>(bits.word[0] % vocab);
    targets.data_ptr<int32_t>()[i] =
        i % 7 == 3 ? ops::kIgnoreIndex : static_cast<int32_t>(bits.word[1] % vocab);
  }
  return {.tokens = tokens.to(device), .targets = targets.to(device), .positions = {}, .documents = {}};
}

void add_documents(model::Batch& batch, const std::vector<int32_t>& starts) {
  const auto context = static_cast<int32_t>(batch.tokens.size(1));
  const auto tokens = static_cast<int32_t>(batch.tokens.numel());
  std::vector<int32_t> boundaries;
  std::vector<int32_t> positions;
  for (int32_t sequence = 0; sequence < tokens; sequence += context) {
    int32_t start = 0;
    for (int32_t t = 0; t < context; ++t) {
      if (std::find(starts.begin(), starts.end(), t) != starts.end()) {
        start = t;
        boundaries.push_back(sequence + t);
      }
      positions.push_back(t - start);
    }
  }
  boundaries.resize(boundaries.size() + 3, tokens);  // padding
  batch.documents.cu_seqlens = at::tensor(boundaries, at::kInt).to(batch.tokens.device());
  batch.positions = at::tensor(positions, at::kInt).to(batch.tokens.device());
}

int64_t counted(const model::Batch& batch) {
  return batch.targets.ne(ops::kIgnoreIndex).sum().item<int64_t>();
}

at::Tensor scale_for(const model::Batch& batch) {
  return at::full({}, 1.0 / static_cast<double>(counted(batch)),
                  at::TensorOptions(batch.tokens.device()).dtype(at::kFloat));
}

std::map<std::string, at::Tensor> gradients_of(model::Transformer& model) {
  std::map<std::string, at::Tensor> result;
  for (const model::ParameterSlot& slot : model.arena().slots()) {
    result[slot.spec.name] = model.arena().gradient(slot).to(at::kCPU, at::kFloat, false, /*copy=*/true);
  }
  return result;
}

Result train_pass(model::Transformer& model, const model::Batch& batch) {
  model.arena().zero_gradients();
  const at::Tensor loss = model.loss(batch, scale_for(batch)).loss;
  loss.backward();
  return {.loss = loss.detach().to(at::kCPU, at::kDouble) / static_cast<double>(counted(batch)),
          .gradients = gradients_of(model)};
}

double relative_error(const at::Tensor& value, const at::Tensor& reference) {
  const at::Tensor right = reference.to(at::kCPU, at::kDouble);
  const at::Tensor difference = value.to(at::kCPU, at::kDouble) - right;
  return difference.norm().item<double>() / right.norm().item<double>();
}

double relative_error(const std::map<std::string, at::Tensor>& values,
                      const std::map<std::string, at::Tensor>& references) {
  std::vector<at::Tensor> left;
  std::vector<at::Tensor> right;
  for (const auto& [name, reference] : references) {
    left.push_back(values.at(name).reshape({-1}).to(at::kDouble));
    right.push_back(reference.reshape({-1}).to(at::kDouble));
  }
  return relative_error(at::cat(left), at::cat(right));
}

double cosine(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.to(at::kCPU, at::kDouble).reshape({-1});
  const at::Tensor right = b.to(at::kCPU, at::kDouble).reshape({-1});
  return (left.dot(right) / (left.norm() * right.norm())).item<double>();
}

bool same_bits(const Result& a, const Result& b) {
  if (!at::equal(a.loss, b.loss) || a.gradients.size() != b.gradients.size()) return false;
  for (const auto& [name, gradient] : a.gradients) {
    if (!at::equal(gradient, b.gradients.at(name))) return false;
  }
  return true;
}

}  // namespace narrowgauge::test
