#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace narrowgauge::test {

// How far `actual` is from `reference`, over the elements that are finite in the reference.
struct Difference {
  double max_abs = 0;
  double relative_l2 = 0;  // |actual - reference| / |reference|; 0 when both are zero
  double cosine = 1;
  double bias = 0;              // mean signed error / root mean square of the reference
  bool same_non_finite = true;  // NaN, +Inf and -Inf stand at the same places
};
Difference compare(const at::Tensor& actual, const at::Tensor& reference);

// Empty when the L2 error is at most rtol * |reference| + atol * sqrt(elements) and non-finite values agree;
// else one line that says what differs. For CHECK(mismatch(...) == "").
std::string mismatch(const at::Tensor& actual, const at::Tensor& reference, double rtol, double atol = 0);

// The acceptance rule of every bf16 kernel: its error is at most twice that of the plain ATen expression
// in the same dtype, plus atol, both as the largest and as the root mean square error, and it is not more
// biased (1e-3 of the reference's root mean square is allowed). Empty, or what is worse.
std::string worse_than_plain(const at::Tensor& actual, const at::Tensor& plain, const at::Tensor& reference,
                             double atol);

// Equal shapes, dtypes and bits (NaNs compare by their bits).
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace narrowgauge::test
