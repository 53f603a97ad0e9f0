#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

// The operations as plain differentiable expressions, computed in the dtype of their inputs: in fp64 the
// reference of every kernel, in bf16 the plain ATen code that a kernel must not be worse than.
namespace narrowgauge::test::reference {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

at::Tensor swiglu(const at::Tensor& gate_up);

// x (tokens, heads, D), positions (tokens). fp64: multiplication of the complex numbers (x_i, x_{i + D/2}) by
// e^(i position theta^(-2i/D)). Other dtypes: the half-split formula with cos and sin rounded to the dtype.
at::Tensor rope(const at::Tensor& x, const at::Tensor& positions, double theta, bool inverse);

// A copy in `type` that collects gradients.
at::Tensor leaf(const at::Tensor& x, at::ScalarType type);

// d(sum(y * dy)) / d(input) of every input, by autograd.
std::vector<at::Tensor> gradients(const at::Tensor& y, const at::Tensor& dy,
                                  const std::vector<at::Tensor>& inputs);

}  // namespace narrowgauge::test::reference
