#pragma once
#include <ATen/core/Tensor.h>

// The CPU twins of cuda/rms_norm.h in plain ATen. Tensors of rows are (n, group, H), last dimension
// contiguous; rstd is (n, group, 1); the aliases of cuda/rms_norm.h are allowed.
namespace narrowgauge::ops::cpu {

// residual and sum are both defined or both undefined.
void rms_norm(const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& sum, const at::Tensor& x,
              const at::Tensor& residual, const at::Tensor& weight, double eps);

void rms_norm_backward(const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& dresidual, const at::Tensor& normed);

}  // namespace narrowgauge::ops::cpu
