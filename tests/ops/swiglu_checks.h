#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::test {

void check_swiglu(at::Device device, at::ScalarType dtype, int64_t rows, int64_t cols);

// Gates of 0, +-20, +-88, +-1e4, +-Inf and NaN.
void check_swiglu_extremes(at::Device device, at::ScalarType dtype);

}  // namespace narrowgauge::test
