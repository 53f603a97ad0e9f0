#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lib/config/model_config.h"
#include "lib/layout/ranges.h"

namespace narrowgauge::layout {

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
// `grad` has the first two groups, `grad32` the others, at the same relative offsets. Slots have this order
// too.
struct ParameterPlan {
  std::vector<ParameterSlot> slots;
  int64_t grad_count = 0;  // elements of the buffers, with padding
  int64_t grad32_count = 0;

  [[nodiscard]] int64_t count() const { return grad_count + grad32_count; }
};
ParameterPlan plan_parameters(const ModelConfig& config);

// make_update_ranges on the plan's tensors.
std::vector<UpdateRange> update_ranges(const std::vector<ParameterSlot>& slots, const OptimConfig& config);

}  // namespace narrowgauge::layout
