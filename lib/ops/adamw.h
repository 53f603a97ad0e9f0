#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "cuda/adamw.h"

namespace narrowgauge::ops {

// The flat buffers of one optimizer step, all contiguous and on one device. Undefined or empty where no range
// and no master mode uses them.
struct AdamWTensors {
  at::Tensor state;      // make_step_state
  at::Tensor weights;    // bf16 or fp32
  at::Tensor grad;       // bf16 or fp32
  at::Tensor grad32;     // fp32
  at::Tensor m_codes;    // uint8
  at::Tensor m_scales;   // fp32, one for 256 codes
  at::Tensor v_codes;    // uint8
  at::Tensor v_scales;   // fp32, one for 256 codes
  at::Tensor m32;        // fp32
  at::Tensor v32;        // fp32
  at::Tensor remainder;  // int16, Master::split
  at::Tensor master;     // fp32, Master::fp32
};

// Updates the weights and states of all ranges as `state` says, or nothing when it says skip. The arithmetic
// is that of cuda/adamw_math.h on both devices, with equal bits. CUDA: one launch for every kMaxAdamWRanges
// ranges.
void adamw(const AdamWTensors& tensors, const std::vector<cuda::AdamWRange>& ranges,
           const cuda::AdamWRules& rules, cuda::Master master);

}  // namespace narrowgauge::ops
