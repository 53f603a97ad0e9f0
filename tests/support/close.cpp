#include "tests/support/close.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <cmath>

namespace narrowgauge::test {
namespace {

double number(const at::Tensor& scalar) { return scalar.item<double>(); }

// NaN, +Inf, -Inf and finite values as four different numbers.
at::Tensor kind(const at::Tensor& x) { return x.nan_to_num(2.0, 3.0, -3.0) * x.isfinite().logical_not(); }

}  // namespace

Difference compare(const at::Tensor& actual, const at::Tensor& reference) {
  TORCH_CHECK(actual.sizes() == reference.sizes(), "compare: ", actual.sizes(), " against ",
              reference.sizes());
  if (actual.numel() == 0) return {};
  const at::Tensor a = actual.detach().to(reference.device(), at::kDouble);
  const at::Tensor r = reference.detach().to(at::kDouble);
  Difference d;
  d.same_non_finite = kind(a).equal(kind(r));
  const at::Tensor finite = r.isfinite().logical_and(a.isfinite());
  const at::Tensor x = a.where(finite, 0.0).flatten();
  const at::Tensor y = r.where(finite, 0.0).flatten();
  const at::Tensor error = x - y;
  const double norm = number(y.norm());
  const double error_norm = number(error.norm());
  d.max_abs = number(error.abs().max());
  d.relative_l2 = error_norm == 0 ? 0 : error_norm / norm;
  const double product = norm * number(x.norm());
  d.cosine = product == 0 ? (error_norm == 0 ? 1.0 : 0.0) : number(x.dot(y)) / product;
  const double rms = norm / std::sqrt(static_cast<double>(y.numel()));
  d.bias = error_norm == 0 ? 0 : number(error.mean()) / rms;
  return d;
}

std::string mismatch(const at::Tensor& actual, const at::Tensor& reference, double rtol, double atol) {
  const Difference d = compare(actual, reference);
  if (!d.same_non_finite) return "NaN or Inf at different places";
  const at::Tensor r = reference.detach().to(at::kDouble);
  const at::Tensor finite = r.where(r.isfinite(), 0.0);
  const double norm = number(finite.norm());
  const double error =
      number((actual.detach().to(r.device(), at::kDouble).where(r.isfinite(), 0.0) - finite).norm());
  const double allowed = rtol * norm + atol * std::sqrt(static_cast<double>(r.numel()));
  if (error <= allowed) return "";
  return fmt::format("L2 error {:.3g} above {:.3g} (relative {:.3g}, max {:.3g}, cosine {:.6f}, bias {:.3g})",
                     error, allowed, d.relative_l2, d.max_abs, d.cosine, d.bias);
}

std::string worse_than_plain(const at::Tensor& actual, const at::Tensor& plain, const at::Tensor& reference,
                             double atol) {
  const Difference ours = compare(actual, reference);
  const Difference theirs = compare(plain, reference);
  if (!ours.same_non_finite) return "NaN or Inf at different places";
  if (actual.numel() == 0) return "";
  const double rms = number(reference.detach().to(at::kDouble).nan_to_num(0, 0, 0).square().mean().sqrt());
  if (ours.max_abs > 2 * theirs.max_abs + atol) {
    return fmt::format("max error {:.3g} against plain {:.3g}", ours.max_abs, theirs.max_abs);
  }
  if (ours.relative_l2 * rms > 2 * theirs.relative_l2 * rms + atol) {
    return fmt::format("relative L2 error {:.3g} against plain {:.3g}", ours.relative_l2, theirs.relative_l2);
  }
  if (std::abs(ours.bias) * rms > (2 * std::abs(theirs.bias) + 1e-3) * rms + atol) {
    return fmt::format("bias {:.3g} against plain {:.3g}", ours.bias, theirs.bias);
  }
  return "";
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::ScalarType bits = a.element_size() == 2   ? at::kShort
                              : a.element_size() == 4 ? at::kInt
                                                      : at::kLong;
  return a.contiguous().view(bits).equal(b.contiguous().view(bits));
}

}  // namespace narrowgauge::test
