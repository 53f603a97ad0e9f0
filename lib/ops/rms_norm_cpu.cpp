#include "lib/ops/rms_norm_cpu.h"

#include <ATen/ops/add.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mv.h>
#include <c10/core/GradMode.h>

namespace narrowgauge::ops::cpu {
namespace {

// One definition, so that backward gives forward's bits again.
void scale_rows(const at::Tensor& y, const at::Tensor& x, const at::Tensor& rstd, const at::Tensor& weight) {
  at::Tensor target = y;
  if (y.scalar_type() == at::kFloat) {
    at::mul_out(target, x, rstd);
    target.mul_(weight);
  } else {
    at::mul_out(target, at::mul(x, rstd), weight);
  }
}

}  // namespace

void rms_norm(const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& sum, const at::Tensor& x,
              const at::Tensor& residual, const at::Tensor& weight, double eps) {
  const c10::NoGradGuard no_grad;
  if (residual.defined()) {
    at::Tensor target = sum;
    at::add_out(target, x, residual);
  }
  const at::Tensor& input = residual.defined() ? sum : x;
  at::Tensor root = rstd;
  at::linalg_vector_norm_out(root, input, 2, at::IntArrayRef{-1}, /*keepdim=*/true, at::kFloat);
  root.square_().div_(static_cast<double>(x.size(-1))).add_(eps).rsqrt_();
  scale_rows(y, input, rstd, weight);
}

void rms_norm_backward(const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& dresidual, const at::Tensor& normed) {
  const c10::NoGradGuard no_grad;
  if (x.numel() == 0) return;
  const int64_t cols = x.size(-1);
  const at::Tensor xhat = at::mul(x, rstd);
  at::Tensor work = at::mul(dy, xhat);
  const at::Tensor weight32 = weight.to(at::kFloat);
  const at::Tensor rows = work.reshape({-1, cols});
  dweight.add_(rows.sum(0));
  const at::Tensor mean = at::mv(rows, weight32).div_(static_cast<double>(cols)).view_as(rstd);
  at::mul_out(work, dy, weight32);
  work.addcmul_(xhat, mean, -1);
  at::Tensor target = dx;
  if (dresidual.defined()) {
    at::add_out(target, work.mul_(rstd), dresidual);
  } else {
    at::mul_out(target, work, rstd);
  }
  if (normed.defined()) scale_rows(normed, x, rstd, weight);
}

}  // namespace narrowgauge::ops::cpu
