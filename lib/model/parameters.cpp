#include "lib/model/parameters.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace narrowgauge::model {
namespace {

int64_t element_count(const ParameterSpec& spec) {
  int64_t count = 1;
  for (const int64_t size : spec.shape) count *= size;
  return count;
}

// Groups of the arena, in buffer order.
int group(const ParameterSpec& spec) {
  switch (spec.kind) {
    case ParameterKind::matrix:
      return element_count(spec) >= kLargeMatrix ? 0 : 1;
    case ParameterKind::norm:
      return 2;
    case ParameterKind::embedding:
      return 3;
  }
  throw std::logic_error("unknown parameter kind");
}

int64_t padded(int64_t count) { return (count + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

at::Tensor flat_zeros(int64_t count, at::ScalarType dtype, at::Device device) {
  return at::zeros({count}, at::TensorOptions().dtype(dtype).device(device));
}

at::Tensor view(const at::Tensor& flat, int64_t offset, const ParameterSlot& slot) {
  return flat.narrow(0, offset, slot.count).view(slot.spec.shape);
}

}  // namespace

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config) {
  using Kind = ParameterKind;
  const int64_t hidden = config.hidden_size;
  std::vector<ParameterSpec> specs;
  const auto add = [&](std::string name, std::vector<int64_t> shape, Kind kind, bool residual = false) {
    specs.push_back({std::move(name), std::move(shape), kind, residual});
  };
  add("embedding.weight", {config.vocab_size, hidden}, Kind::embedding);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = fmt::format("layers.{}.", i);
    add(layer + "attention_norm.weight", {hidden}, Kind::norm);
    add(layer + "qkv.weight", {config.qkv_width(), hidden}, Kind::matrix);
    if (config.qk_norm) {
      add(layer + "q_norm.weight", {config.head_size()}, Kind::norm);
      add(layer + "k_norm.weight", {config.head_size()}, Kind::norm);
    }
    add(layer + "attention_out.weight", {hidden, config.query_width()}, Kind::matrix, true);
    add(layer + "ffn_norm.weight", {hidden}, Kind::norm);
    add(layer + "gate_up.weight", {2 * config.ffn_size, hidden}, Kind::matrix);
    add(layer + "down.weight", {hidden, config.ffn_size}, Kind::matrix, true);
  }
  add("norm.weight", {hidden}, Kind::norm);
  if (!config.tie_embeddings) add("head.weight", {config.vocab_size, hidden}, Kind::embedding);
  return specs;
}

ParameterArena::ParameterArena(const ModelConfig& config, at::ScalarType dtype, at::Device device) {
  std::vector<ParameterSpec> specs = parameter_specs(config);
  std::stable_sort(specs.begin(), specs.end(),
                   [](const ParameterSpec& a, const ParameterSpec& b) { return group(a) < group(b); });
  for (ParameterSpec& spec : specs) {
    int64_t& grads = spec.kind == ParameterKind::matrix ? grad_count_ : grad32_count_;
    const int64_t count = element_count(spec);
    slots_.push_back({std::move(spec), grad_count_ + grad32_count_, grads, count});
    grads += padded(count);
  }
  weights_ = flat_zeros(grad_count_ + grad32_count_, dtype, device);
  for (const ParameterSlot& slot : slots_) {
    parameters_.push_back(weight(slot).detach().requires_grad_(true));
  }
}

void ParameterArena::allocate_gradients(at::ScalarType grad_dtype) {
  if (grad_.defined()) throw std::logic_error("gradients are already allocated");
  grad_ = flat_zeros(grad_count_, grad_dtype, weights_.device());
  grad32_ = flat_zeros(grad32_count_, at::kFloat, weights_.device());
  for (size_t i = 0; i < slots_.size(); ++i) {
    const at::Tensor view = gradient(slots_[i]);
    if (view.scalar_type() == weights_.scalar_type()) parameters_[i].mutable_grad() = view;
  }
}

void ParameterArena::zero_gradients() {
  grad_.zero_();
  grad32_.zero_();
}

bool ParameterArena::contains(const std::string& name) const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [&](const ParameterSlot& slot) { return slot.spec.name == name; });
}

const ParameterSlot& ParameterArena::slot(const std::string& name) const {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const ParameterSlot& slot) { return slot.spec.name == name; });
  if (found == slots_.end()) throw std::logic_error("no parameter is called " + name);
  return *found;
}

at::Tensor ParameterArena::weight(const ParameterSlot& slot) const {
  return view(weights_, slot.offset, slot);
}

at::Tensor ParameterArena::gradient(const ParameterSlot& slot) const {
  const at::Tensor& buffer = slot.spec.kind == ParameterKind::matrix ? grad_ : grad32_;
  return buffer.defined() ? view(buffer, slot.grad_offset, slot) : at::Tensor();
}

const at::Tensor& ParameterArena::parameter(const ParameterSlot& slot) const {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const ParameterSlot& own) { return own.offset == slot.offset; });
  return parameters_.at(static_cast<size_t>(found - slots_.begin()));
}

}  // namespace narrowgauge::model
