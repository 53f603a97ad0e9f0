#include "lib/ops/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>

namespace narrowgauge::ops {
namespace {

void check_rows(const at::Tensor& narrow, const at::Tensor& wide, const char* what) {
  TORCH_CHECK(narrow.dim() == 2 && wide.dim() == 2 && narrow.size(0) == wide.size(0), "linear: ", what,
              " must have two dimensions and equal rows");
  TORCH_CHECK(narrow.scalar_type() == wide.scalar_type(), "linear: ", what, " must have one dtype");
}

}  // namespace

void linear_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w) {
  const c10::NoGradGuard no_grad;
  check_rows(y, x, "y and x");
  at::Tensor out = y;
  at::mm_out(out, x, w.t());
}

void linear_input_grad(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& w) {
  const c10::NoGradGuard no_grad;
  check_rows(dx, dy, "dx and dy");
  at::Tensor out = dx;
  at::mm_out(out, dy, w);
}

void linear_weight_grad(const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  check_rows(dy, x, "dy and x");
  if (dy.size(0) == 0) return;
  // One Tensor object for self and out: addmm copies self into any other.
  at::Tensor out = dw;
  if (dw.scalar_type() == x.scalar_type()) {
    at::addmm_out(out, out, dy.t(), x, /*beta=*/1, /*alpha=*/1);
  } else if (dw.is_cuda()) {
    at::addmm_out(out, out, dy.t(), x, dw.scalar_type(), /*beta=*/1, /*alpha=*/1);
  } else {
    at::addmm_out(out, out, dy.t().to(dw.scalar_type()), x.to(dw.scalar_type()), /*beta=*/1, /*alpha=*/1);
  }
}

}  // namespace narrowgauge::ops
