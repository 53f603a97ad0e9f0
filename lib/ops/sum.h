#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace narrowgauge::ops {

// out += the sum of x, or of its squares: one fp32 value and a contiguous fp32 (count) of its device.
struct Sum {
  at::Tensor out;
  at::Tensor x;
  bool squares = false;
};

// At most three sums in one launch, where none reads or writes what another writes; a step's way to add up
// over micro-batches. The additions are fp32 in an order that depends on the count alone, the same on the CPU
// and on CUDA. Nothing is allocated; CUDA is asynchronous on the current stream. Wrong shapes or dtypes, or
// different devices, throw c10::Error.
void sum_into(std::initializer_list<Sum> sums);

}  // namespace narrowgauge::ops
