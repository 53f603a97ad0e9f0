#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

// The three matrix products of a linear layer without bias; rows x (rows, I), dy and y (rows, O),
// w (O, I). bf16 inputs are multiplied with fp32 accumulation. CUDA: cuBLAS on the current stream.

// y = x w^T
void linear_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w);
// dx = dy w
void linear_input_grad(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& w);
// dw += dy^T x, accumulated by the product itself; dw has w's shape and either w's dtype or fp32.
void linear_weight_grad(const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x);

}  // namespace narrowgauge::ops
