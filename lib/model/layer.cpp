#include "lib/model/layer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <optional>
#include <stdexcept>

namespace narrowgauge::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What one call of a layer carries from forward to backward.
struct Call : torch::CustomClassHolder {
  const LayerWeights* weights;
  const LayerWeights* gradients;
  std::shared_ptr<const Pass> pass;
  int64_t layer;
  RecomputeLevel level;
  LayerKept kept;
  bool used = false;
};

// The leaves are inputs only so that autograd reaches this function: their gradients go straight into the
// arena, and backward returns none for them.
struct LayerFunction : torch::autograd::Function<LayerFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& residual,
                               const std::optional<at::Tensor>& delta, at::TensorList leaves,
                               const c10::intrusive_ptr<Call>& call) {
    context->saved_data["call"] = at::IValue::make_capsule(call);
    context->saved_data["leaves"] = static_cast<int64_t>(leaves.size());
    context->saved_data["delta"] = delta.has_value();
    Stream out = layer_forward(*call->weights, {*call->pass, call->layer, layout::Phase::forward},
                               call->level, {residual, delta.value_or(at::Tensor())}, call->kept);
    // An output that its own node kept would hold itself alive.
    at::Tensor& middle = call->kept.feed_forward.entry.input;
    if (middle.defined()) middle = middle.detach();
    return {out.residual, out.delta};
  }

  static variable_list backward(AutogradContext* context, const variable_list& doutputs) {
    const auto capsule = context->saved_data["call"].toCapsule();
    auto& call = static_cast<Call&>(*capsule);
    if (call.used) throw std::logic_error("a layer's backward runs once for each forward");
    call.used = true;
    call.pass->slab->require(call.pass->number);
    const at::Tensor dinput =
        layer_backward(*call.weights, *call.gradients, {*call.pass, call.layer, layout::Phase::backward},
                       call.kept, doutputs[0], doutputs[1]);
    call.kept = {};
    variable_list result(2 + static_cast<size_t>(context->saved_data["leaves"].toInt()) + 1);
    result[0] = dinput;
    if (context->saved_data["delta"].toBool()) result[1] = dinput;
    return result;
  }
};

// The layer's tensors by their names; `get` returns an undefined one for a name that the model lacks.
LayerWeights collect(const std::function<at::Tensor(const std::string&)>& get) {
  return {.attention = {.norm = get("attention_norm.weight"),
                        .qkv = get("qkv.weight"),
                        .query_norm = get("q_norm.weight"),
                        .key_norm = get("k_norm.weight"),
                        .out = get("attention_out.weight")},
          .feed_forward = {
              .norm = get("ffn_norm.weight"), .gate_up = get("gate_up.weight"), .down = get("down.weight")}};
}

}  // namespace

LayerImpl::LayerImpl(const ParameterArena& arena, int64_t index, RecomputeLevel level)
    : arena_(arena), index_(index), prefix_(fmt::format("layers.{}.", index)), level_(level) {
  for (const ParameterSlot& slot : arena.slots()) {
    if (!slot.spec.name.starts_with(prefix_)) continue;
    leaves_.push_back(arena.parameter(slot));
    register_dotted(*this, slot.spec.name.substr(prefix_.size()), leaves_.back());
  }
  weights_ = collect([&](const std::string& name) {
    return arena.contains(prefix_ + name) ? arena.weight(arena.slot(prefix_ + name)) : at::Tensor();
  });
}

const LayerWeights& LayerImpl::gradients() {
  if (!arena_.grad().defined()) {
    throw std::logic_error("allocate_gradients() comes before a pass with gradients enabled");
  }
  if (!gradients_.attention.qkv.defined()) {
    gradients_ = collect([&](const std::string& name) {
      return arena_.contains(prefix_ + name) ? arena_.gradient(arena_.slot(prefix_ + name)) : at::Tensor();
    });
  }
  return gradients_;
}

Stream LayerImpl::forward(const Stream& stream, const std::shared_ptr<const Pass>& pass) {
  if (!at::GradMode::is_enabled()) {
    LayerKept dropped;
    return layer_forward(weights_, {*pass, index_, layout::Phase::forward}, RecomputeLevel::block, stream,
                         dropped);
  }
  auto call = c10::make_intrusive<Call>();
  call->weights = &weights_;
  call->gradients = &gradients();
  call->pass = pass;
  call->layer = index_;
  call->level = level_;
  const auto delta = stream.delta.defined() ? std::optional(stream.delta) : std::nullopt;
  const variable_list out = LayerFunction::apply(stream.residual, delta, at::TensorList(leaves_), call);
  return {out[0], out[1]};
}

void register_dotted(torch::nn::Module& module, const std::string& name, const at::Tensor& parameter) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) {
    module.register_parameter(name, parameter);
    return;
  }
  auto child = std::make_shared<torch::nn::Module>();
  register_dotted(*child, name.substr(dot + 1), parameter);
  module.register_module(name.substr(0, dot), child);
}

}  // namespace narrowgauge::model
