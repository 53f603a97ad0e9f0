#include "lib/model/parameters.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <stdexcept>

namespace narrowgauge::model {
namespace {

at::Tensor flat_zeros(int64_t count, at::ScalarType dtype, at::Device device) {
  return at::zeros({count}, at::TensorOptions().dtype(dtype).device(device));
}

at::Tensor view(const at::Tensor& flat, int64_t offset, const ParameterSlot& slot) {
  return flat.narrow(0, offset, slot.count).view(slot.spec.shape);
}

}  // namespace

ParameterArena::ParameterArena(const ModelConfig& config, at::ScalarType dtype, at::Device device)
    : plan_(layout::plan_parameters(config)), weights_(flat_zeros(plan_.count(), dtype, device)) {
  for (const ParameterSlot& slot : plan_.slots) {
    parameters_.push_back(weight(slot).detach().requires_grad_(true));
  }
}

void ParameterArena::allocate_gradients(at::ScalarType grad_dtype) {
  if (grad_.defined()) throw std::logic_error("gradients are already allocated");
  grad_ = flat_zeros(plan_.grad_count, grad_dtype, weights_.device());
  grad32_ = flat_zeros(plan_.grad32_count, at::kFloat, weights_.device());
  for (size_t i = 0; i < plan_.slots.size(); ++i) {
    const at::Tensor view = gradient(plan_.slots[i]);
    if (view.scalar_type() == weights_.scalar_type()) parameters_[i].mutable_grad() = view;
  }
}

void ParameterArena::zero_gradients() {
  grad_.zero_();
  grad32_.zero_();
}

bool ParameterArena::contains(const std::string& name) const {
  return std::any_of(plan_.slots.begin(), plan_.slots.end(),
                     [&](const ParameterSlot& slot) { return slot.spec.name == name; });
}

const ParameterSlot& ParameterArena::slot(const std::string& name) const {
  const auto found = std::find_if(plan_.slots.begin(), plan_.slots.end(),
                                  [&](const ParameterSlot& slot) { return slot.spec.name == name; });
  if (found == plan_.slots.end()) throw std::logic_error("no parameter is called " + name);
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
  const auto found = std::find_if(plan_.slots.begin(), plan_.slots.end(),
                                  [&](const ParameterSlot& own) { return own.offset == slot.offset; });
  return parameters_.at(static_cast<size_t>(found - plan_.slots.begin()));
}

}  // namespace narrowgauge::model
