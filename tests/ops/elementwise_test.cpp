// The CPU twins of the norms, RoPE and SwiGLU against fp64 references, and the tests' own measures.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "lib/ops/device.h"
#include "tests/ops/rms_norm_checks.h"
#include "tests/ops/rope_checks.h"
#include "tests/ops/swiglu_checks.h"
#include "tests/support/catch.h"
#include "tests/support/close.h"
#include "tests/support/random.h"

namespace narrowgauge::test {
namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};

TEST_CASE("the norm equals its reference") {
  for (const at::ScalarType dtype : kTypes) {
    for (const int64_t cols : {1, 8, 41, 112, 256, 1000, 1792, 4096})
      check_rms_norm(at::kCPU, dtype, {17, cols});
    for (const int64_t rows : {0, 1, 3}) check_rms_norm(at::kCPU, dtype, {rows, 48});
    check_rms_norm(at::kCPU, dtype, {9, 64, 3});
    check_rms_norm(at::kCPU, dtype, {9, 64, 16});
    check_rms_norm_special_rows(at::kCPU, dtype, 41);
    check_rms_norm_special_rows(at::kCPU, dtype, 1792);
  }
  check_rms_norm_arguments(at::kCPU);
}

TEST_CASE("the head norm touches its heads alone") {
  for (const at::ScalarType dtype : kTypes) {
    check_head_norm(at::kCPU, dtype, 13, 112, 0, 4, 8);
    check_head_norm(at::kCPU, dtype, 13, 41, 2, 3, 7);
    check_head_norm(at::kCPU, dtype, 1, 8, 1, 1, 3);
  }
}

TEST_CASE("RoPE equals complex rotation") {
  for (const at::ScalarType dtype : kTypes) {
    for (const int64_t dim : {2, 64, 80, 96, 112, 128}) {
      check_rope(at::kCPU, dtype, {.tokens = 70, .heads = 6, .values = 2, .head_dim = dim});
    }
    check_rope(at::kCPU, dtype,
               {.tokens = 9, .heads = 3, .values = 1, .head_dim = 10, .gap = 3, .theta = 5e5});
    check_rope(at::kCPU, dtype, {.tokens = 0, .heads = 2, .values = 1, .head_dim = 8});
    check_rope(at::kCPU, dtype, {.tokens = 1, .heads = 2, .values = 0, .head_dim = 8});
  }
  check_rope_properties(at::kCPU);
}

TEST_CASE("SwiGLU equals its reference") {
  for (const at::ScalarType dtype : kTypes) {
    for (const int64_t cols : {1, 7, 41, 4736}) check_swiglu(at::kCPU, dtype, 5, cols);
    check_swiglu(at::kCPU, dtype, 0, 16);
    check_swiglu_extremes(at::kCPU, dtype);
  }
}

TEST_CASE("a CPU tensor has no CUDA stream") {
  CHECK_THROWS_AS(ops::current_stream(at::zeros({1})), std::logic_error);
  CHECK_THROWS_AS(ops::limits_of(at::zeros({1})), std::logic_error);
}

TEST_CASE("compare measures what it says") {
  const at::Tensor reference = at::tensor({3.0, -4.0, 0.0, 0.0});
  const Difference same = compare(reference, reference);
  CHECK(same.max_abs == 0);
  CHECK(same.relative_l2 == 0);
  CHECK(same.cosine == Approx(1));
  const Difference shifted = compare(reference + 1.0, reference);
  CHECK(shifted.max_abs == Approx(1));
  CHECK(shifted.relative_l2 == Approx(2.0 / 5.0));
  CHECK(shifted.bias == Approx(1.0 / 2.5));
  CHECK(compare(-reference, reference).cosine == Approx(-1));
  CHECK(compare(at::zeros({0}), at::zeros({0})).same_non_finite);
}

TEST_CASE("mismatch and worse_than_plain accept and refuse") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const at::Tensor reference = at::tensor({1.0, 2.0, 3.0, kInf, kNan});
  CHECK(mismatch(reference, reference, 0) == "");
  CHECK(mismatch(reference * 1.001, reference, 0.0011) == "");
  CHECK(mismatch(reference * 1.001, reference, 0.0009) != "");
  CHECK(mismatch(at::tensor({1.0, 2.0, 3.0, -kInf, kNan}), reference, 1) != "");
  CHECK(mismatch(at::tensor({1.0, 2.0, kNan, kInf, kNan}), reference, 1) != "");
  CHECK(mismatch(at::tensor({1.0, 2.0, 3.0, kInf, 4.0}), reference, 1) != "");

  const at::Tensor exact = Random(at::kCPU, at::kDouble)({1000});
  const at::Tensor noise = Random(at::kCPU, at::kDouble, 2)({1000}) * 0.01;
  CHECK(worse_than_plain(exact + noise, exact + noise, exact, 0) == "");
  CHECK(worse_than_plain(exact + noise * 3.0, exact + noise, exact, 0) != "");
  CHECK(worse_than_plain(exact + noise.abs(), exact + noise, exact, 0) != "");  // as large, but biased
}

TEST_CASE("same_bits sees signs of zero and equal NaNs") {
  const at::Tensor nan = at::tensor({std::numeric_limits<float>::quiet_NaN()});
  CHECK(same_bits(nan, nan.clone()));
  CHECK(!same_bits(at::tensor({0.0f}), at::tensor({-0.0f})));
  CHECK(!same_bits(at::tensor({0.0f}), at::tensor({0.0})));
}

}  // namespace
}  // namespace narrowgauge::test
