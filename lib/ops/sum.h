#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

// out += the sum of x: one fp32 value and a contiguous fp32 (count) of its device; a step's way to add up
// over micro-batches. The additions are fp32 in an order that depends on the count alone, the same on the CPU
// and on CUDA. One launch, nothing is allocated; CUDA is asynchronous on the current stream. Wrong shapes or
// dtypes throw c10::Error.
void sum_into(const at::Tensor& out, const at::Tensor& x);
// The same with the squares of x.
void sum_squares_into(const at::Tensor& out, const at::Tensor& x);

}  // namespace narrowgauge::ops
