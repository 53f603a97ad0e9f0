#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lib/layout/parameters.h"

namespace narrowgauge::model {

using layout::kArenaAlignment;
using layout::kLargeMatrix;
using layout::parameter_specs;
using layout::ParameterKind;
using layout::ParameterSlot;
using layout::ParameterSpec;

// The flat buffers of layout::ParameterPlan: all weights in one, all gradients in two. slots() has the plan's
// order. Padding is zero and stays zero.
class ParameterArena {
 public:
  ParameterArena(const ModelConfig& config, at::ScalarType dtype, at::Device device);

  // Allocates the gradient buffers, zeroed; once (std::logic_error). Until then the model can only run
  // forward. parameter().grad() becomes the gradient view where both have one dtype; elsewhere it stays
  // undefined, since LibTorch wants a gradient of the parameter's dtype (fp32 gradients of bf16 parameters,
  // and the reverse).
  void allocate_gradients(at::ScalarType grad_dtype);
  // Sets all gradients to zero: one fill a buffer.
  void zero_gradients();

  [[nodiscard]] const std::vector<ParameterSlot>& slots() const { return plan_.slots; }
  // std::logic_error when no tensor has the name.
  [[nodiscard]] const ParameterSlot& slot(const std::string& name) const;
  [[nodiscard]] bool contains(const std::string& name) const;
  [[nodiscard]] at::Tensor weight(const ParameterSlot& slot) const;    // view, spec.shape
  [[nodiscard]] at::Tensor gradient(const ParameterSlot& slot) const;  // view, spec.shape; undefined before
  // The leaf of autograd over the same memory as weight(slot): what the module registers.
  [[nodiscard]] const at::Tensor& parameter(const ParameterSlot& slot) const;
  [[nodiscard]] const at::Tensor& weights() const { return weights_; }  // flat
  [[nodiscard]] const at::Tensor& grad() const { return grad_; }        // flat
  [[nodiscard]] const at::Tensor& grad32() const { return grad32_; }    // flat

 private:
  layout::ParameterPlan plan_;
  std::vector<at::Tensor> parameters_;  // beside the plan's slots
  at::Tensor weights_;
  at::Tensor grad_;
  at::Tensor grad32_;
};

}  // namespace narrowgauge::model
