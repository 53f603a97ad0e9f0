#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

// cos and sin of position * theta^(-2i / head_dim), fp32, computed in fp64: (max_positions, head_dim / 2).
struct RopeTable {
  at::Tensor cos;
  at::Tensor sin;
};
RopeTable make_rope_table(int64_t max_positions, int64_t head_dim, double theta, at::Device device);

// Rotary position embedding (Su et al. 2021), half-split layout as in Hugging Face: element i of a head
// is paired with i + head_dim / 2. Rotates in place the first `heads` heads of every row of qkv
// (tokens, W), bf16 or fp32; the rest of a row (the values) is not touched. Row t has position
// positions[t] (int32, on the same device) or, when `positions` is undefined, t % context. `inverse`
// rotates back: the backward pass. Positions must be below the table's rows (CPU: checked; CUDA: the
// caller guarantees it).
void rope_in_place(const at::Tensor& qkv, const RopeTable& table, int64_t heads, int64_t head_dim,
                   int64_t context, const at::Tensor& positions, bool inverse);

}  // namespace narrowgauge::ops
