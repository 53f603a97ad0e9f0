#pragma once
#include <ATen/core/Tensor.h>

#include "cuda/gradient_norm.h"

namespace narrowgauge::ops {

// The cuda::StepState that lives on a device: a contiguous uint8 tensor of its size.
at::Tensor make_step_state(at::Device device);  // the initial state

// Writes the input part. CUDA: asynchronous on the current stream, and `input` may be gone at once.
void write_step_input(const at::Tensor& state, const cuda::StepInput& input);

// Elements of the scratch tensor (fp64, on the state's device).
inline constexpr int64_t kNormScratch = 2 * int64_t{cuda::kGradNormPartials};

// The L2 norm over both gradient buffers and its consequences, written into `state`: skip, clip factor,
// Adam's step count, bias corrections and skip counters (cuda/step_math.h). grad: bf16 or fp32; grad32: fp32;
// both flat and contiguous, either may be empty. The CPU adds in the same order as the kernel.
void gradient_norm(const at::Tensor& state, const at::Tensor& scratch, const at::Tensor& grad,
                   const at::Tensor& grad32, const cuda::StepRules& rules);

}  // namespace narrowgauge::ops
