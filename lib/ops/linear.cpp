#include "lib/ops/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "lib/ops/gemm.h"

namespace narrowgauge::ops {
namespace {

void check_rows(const at::Tensor& narrow, const at::Tensor& wide, const char* what) {
  TORCH_CHECK(narrow.dim() == 2 && wide.dim() == 2 && narrow.size(0) == wide.size(0), "linear: ", what,
              " must have two dimensions and equal rows");
  TORCH_CHECK(narrow.scalar_type() == wide.scalar_type(), "linear: ", what, " must have one dtype");
}

}  // namespace

std::array<GemmShape, 3> linear_products(const LinearShape& s) {
  const GemmShape forward{.m = s.rows,
                          .n = s.out,
                          .k = s.in,
                          .transpose_b = true,
                          .lda = s.in,
                          .ldb = s.in,
                          .ldc = s.y_stride,
                          .in = s.dtype,
                          .out = s.dtype};
  const GemmShape input_grad{.m = s.rows,
                             .n = s.in,
                             .k = s.out,
                             .lda = s.y_stride,
                             .ldb = s.in,
                             .ldc = s.in,
                             .in = s.dtype,
                             .out = s.dtype};
  const GemmShape weight_grad{.m = s.out,
                              .n = s.in,
                              .k = s.rows,
                              .transpose_a = true,
                              .lda = s.y_stride,
                              .ldb = s.in,
                              .ldc = s.in,
                              .in = s.dtype,
                              .out = s.grad_dtype,
                              .accumulate = true};
  return {forward, input_grad, weight_grad};
}

void linear_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w) {
  const c10::NoGradGuard no_grad;
  check_rows(y, x, "y and x");
  if (y.is_cuda()) return gemm(y, x, false, w, true, /*accumulate=*/false);
  at::Tensor out = y;
  at::mm_out(out, x, w.t());
}

void linear_input_grad(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& w) {
  const c10::NoGradGuard no_grad;
  check_rows(dx, dy, "dx and dy");
  if (dx.is_cuda()) return gemm(dx, dy, false, w, false, /*accumulate=*/false);
  at::Tensor out = dx;
  at::mm_out(out, dy, w);
}

void linear_weight_grad(const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  check_rows(dy, x, "dy and x");
  if (dw.is_cuda()) return gemm(dw, dy, true, x, false, /*accumulate=*/true);
  if (dy.size(0) == 0) return;
  // One Tensor object for self and out: addmm copies self into any other.
  at::Tensor out = dw;
  if (dw.scalar_type() == x.scalar_type()) {
    at::addmm_out(out, out, dy.t(), x, /*beta=*/1, /*alpha=*/1);
  } else {
    at::addmm_out(out, out, dy.t().to(dw.scalar_type()), x.to(dw.scalar_type()), /*beta=*/1, /*alpha=*/1);
  }
}

void ProductTimings::add(const ProductTimings& other, double uses) {
  in_force += other.in_force;
  recalled += other.recalled;
  timed += other.timed;
  refused += other.refused;
  left += other.left;
  first_us += uses * other.first_us;
  chosen_us += uses * other.chosen_us;
}

std::array<std::string, 3> linear_keys(const LinearShape& shape) {
  std::array<std::string, 3> keys;
  std::ranges::transform(linear_products(shape), keys.begin(), gemm_key);
  return keys;
}

ProductTimings time_linear(const LinearShape& s, at::Device device, int64_t byte_limit) {
  ProductTimings all;
  for (const GemmShape& shape : linear_products(s)) all.add(time_gemm(shape, device, byte_limit));
  return all;
}

}  // namespace narrowgauge::ops
