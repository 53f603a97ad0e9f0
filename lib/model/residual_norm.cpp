#include "lib/model/residual_norm.h"

#include "lib/model/buffers.h"
#include "lib/ops/rms_norm.h"

namespace narrowgauge::model {

ResidualNorm enter(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight,
                   double eps) {
  if (!delta.defined()) {
    ResidualNorm norm{.input = residual.detach(), .normed = {}, .rstd = {}};
    normalise(norm, weight, eps);
    return norm;
  }
  ResidualNorm norm{.input = take(residual.sizes(), residual),
                    .normed = take(residual.sizes(), residual),
                    .rstd = take({residual.size(0)}, residual, at::kFloat)};
  ops::add_rms_norm_forward(norm.input, norm.normed, norm.rstd, delta, residual, weight, eps);
  return norm;
}

void normalise(ResidualNorm& norm, const at::Tensor& weight, double eps) {
  if (norm.normed.defined()) return;
  norm.normed = take(norm.input.sizes(), norm.input);
  if (!norm.rstd.defined()) norm.rstd = take({norm.input.size(0)}, norm.input, at::kFloat);
  ops::rms_norm_forward(norm.normed, norm.rstd, norm.input, weight, eps);
}

void enter_backward(const at::Tensor& dinput, const ResidualNorm& norm, const at::Tensor& weight,
                    const at::Tensor& dweight, const at::Tensor& dnormed, const at::Tensor& dresidual) {
  ops::rms_norm_backward(dinput, dweight, dnormed, norm.input, weight, norm.rstd, dresidual);
}

}  // namespace narrowgauge::model
