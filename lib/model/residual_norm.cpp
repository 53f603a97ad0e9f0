#include "lib/model/residual_norm.h"

#include "lib/ops/rms_norm.h"

namespace narrowgauge::model {

ResidualNorm enter(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight,
                   const Place& place, const layout::EntryNames& names) {
  if (!delta.defined()) {
    ResidualNorm norm{.input = residual.detach(), .normed = {}, .rstd = {}};
    normalise(norm, weight, place, names);
    return norm;
  }
  ResidualNorm norm{
      .input = place.take(names.input), .normed = place.take(names.normed), .rstd = place.take(names.rstd)};
  ops::add_rms_norm_forward(norm.input, norm.normed, norm.rstd, delta, residual, weight, place.pass.eps);
  return norm;
}

void normalise(ResidualNorm& norm, const at::Tensor& weight, const Place& place,
               const layout::EntryNames& names) {
  if (norm.normed.defined()) return;
  norm.normed = place.take(names.normed);
  if (!norm.rstd.defined()) norm.rstd = place.take(names.rstd);
  ops::rms_norm_forward(norm.normed, norm.rstd, norm.input, weight, place.pass.eps);
}

void enter_backward(const at::Tensor& dinput, ResidualNorm& norm, const at::Tensor& weight,
                    const at::Tensor& dweight, const at::Tensor& dnormed, const at::Tensor& dresidual,
                    const Place& place, const layout::EntryNames& names) {
  at::Tensor missing;
  if (!norm.normed.defined()) missing = norm.normed = place.take(names.normed);
  ops::rms_norm_backward(dinput, dweight, dnormed, norm.input, weight, norm.rstd, dresidual, missing,
                         place.norm_scratch());
}

}  // namespace narrowgauge::model
