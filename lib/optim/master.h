#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::optim {

// Names in Optimizer::state_tensors() of what makes the fp32 master of bf16 weights exact.
inline constexpr const char* kRemainderName = "remainder";  // int16, optim.master: split
inline constexpr const char* kMasterName = "master";        // fp32, optim.master: fp32

// The fp32 masters of bf16 `weights` and their int16 remainders, both contiguous, of one shape and on the
// CPU.
at::Tensor join_masters(const at::Tensor& weights, const at::Tensor& remainders);

}  // namespace narrowgauge::optim
