#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lib/config/model_config.h"

namespace narrowgauge::model {

// Which optimizer rules and which gradient dtype a tensor gets.
enum class ParameterKind { matrix, norm, embedding };  // embedding: also an untied head

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  ParameterKind kind;
  bool residual_projection = false;  // writes into the residual stream: scaled init
};

// Every parameter of the model, in forward order. Names are the contract with checkpoints and lib/io:
//   embedding.weight (V, H)
//   layers.N.attention_norm.weight (H)    layers.N.qkv.weight (A + 2K, H): queries, keys, values
//   layers.N.q_norm.weight (D), layers.N.k_norm.weight (D): only with qk_norm
//   layers.N.attention_out.weight (H, A)  layers.N.ffn_norm.weight (H)
//   layers.N.gate_up.weight (2F, H)       layers.N.down.weight (H, F)
//   norm.weight (H)                       head.weight (V, H): only untied
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config);

// Every tensor starts at a multiple of this many elements, so that no optimizer block spans two tensors.
inline constexpr int64_t kArenaAlignment = 256;
// Matrices of at least this many elements come first in the buffers, so that they form one range.
inline constexpr int64_t kLargeMatrix = 4096;

// Where one tensor lies. Offsets count elements.
struct ParameterSlot {
  ParameterSpec spec;
  int64_t offset;       // in the weight buffer
  int64_t grad_offset;  // in grad (low) or grad32, by kind
  int64_t count;        // elements without padding
};

// All weights in one flat buffer, all gradients in two: `grad` (matrices, memory.grad_dtype) and `grad32`
// (embedding, untied head and norms: always fp32). Order in the weight buffer, in each group the forward
// order: matrices of at least kLargeMatrix elements, smaller matrices, norms, embedding and untied head.
// `grad` has the first two groups, `grad32` the others, at the same relative offsets. slots() has this order
// too. Padding is zero and stays zero.
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

  [[nodiscard]] const std::vector<ParameterSlot>& slots() const { return slots_; }
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
  std::vector<ParameterSlot> slots_;
  std::vector<at::Tensor> parameters_;  // beside slots_
  at::Tensor weights_;
  at::Tensor grad_;
  at::Tensor grad32_;
  int64_t grad_count_ = 0;
  int64_t grad32_count_ = 0;
};

}  // namespace narrowgauge::model
