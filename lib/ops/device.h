#pragma once
#include <ATen/core/Tensor.h>

#include "cuda/device_limits.h"
#include "cuda/stream.h"

namespace narrowgauge::ops {

// The current CUDA stream of the tensor's device, and that device's limits. Both throw
// std::logic_error for a CPU tensor or in a build without CUDA.
cuda::Stream current_stream(const at::Tensor& tensor);
cuda::DeviceLimits limits_of(const at::Tensor& tensor);

// Tests only: plan every launch as for `limits` until called with nullptr.
void override_limits(const cuda::DeviceLimits* limits);

}  // namespace narrowgauge::ops
