#include "lib/layout/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace narrowgauge::layout {
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

ParameterPlan plan_parameters(const ModelConfig& config) {
  std::vector<ParameterSpec> specs = parameter_specs(config);
  std::stable_sort(specs.begin(), specs.end(),
                   [](const ParameterSpec& a, const ParameterSpec& b) { return group(a) < group(b); });
  ParameterPlan plan;
  for (ParameterSpec& spec : specs) {
    int64_t& grads = spec.kind == ParameterKind::matrix ? plan.grad_count : plan.grad32_count;
    const int64_t count = element_count(spec);
    plan.slots.push_back({std::move(spec), plan.count(), grads, count});
    grads += padded(count);
  }
  return plan;
}

std::vector<UpdateRange> update_ranges(const std::vector<ParameterSlot>& slots, const OptimConfig& config) {
  std::vector<TensorSlot> tensors;
  tensors.reserve(slots.size());
  for (const ParameterSlot& slot : slots) {
    tensors.push_back({.offset = slot.offset,
                       .grad_offset = slot.grad_offset,
                       .count = slot.count,
                       .embedding = slot.spec.kind == ParameterKind::embedding,
                       .norm = slot.spec.kind == ParameterKind::norm});
  }
  return make_update_ranges(tensors, config);
}

}  // namespace narrowgauge::layout
