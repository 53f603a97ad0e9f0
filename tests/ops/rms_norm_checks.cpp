#include "tests/ops/rms_norm_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "lib/ops/rms_norm.h"
#include "tests/support/catch.h"
#include "tests/support/close.h"
#include "tests/support/random.h"
#include "tests/support/reference.h"

namespace narrowgauge::test {
namespace {

constexpr double kEps = 1e-5;

// One rounding to bf16 is at most 2^-9 = 1.95e-3 of a value.
// Half a unit in the last place: one element may dominate a small tensor.
double tolerance(at::ScalarType dtype) { return dtype == at::kFloat ? 2e-6 : 0x1p-8; }

at::Tensor fp32(const at::Tensor& like, at::IntArrayRef size) {
  return at::empty(size, like.options().dtype(at::kFloat));
}

}  // namespace

void check_rms_norm(at::Device device, at::ScalarType dtype, const NormCase& c) {
  CAPTURE(c.rows, c.cols, c.gap, at::toString(dtype), device.str());
  Random random(device, dtype);
  const auto matrix = [&] { return random.strided(c.rows, c.cols, c.gap); };
  const at::Tensor x = matrix();
  const at::Tensor residual = matrix();
  const at::Tensor dy = matrix();
  const at::Tensor dresidual = matrix();
  const at::Tensor weight = random({c.cols}) * 0.2 + 1.0;
  const double rtol = tolerance(dtype);

  const at::Tensor y = matrix();
  const at::Tensor rstd = fp32(x, {c.rows});
  ops::rms_norm_forward(y, rstd, x, weight, kEps);
  const at::Tensor x64 = reference::leaf(x, at::kDouble);
  const at::Tensor w64 = reference::leaf(weight, at::kDouble);
  const at::Tensor y64 = reference::rms_norm(x64, w64, kEps);
  const at::Tensor plain_x = reference::leaf(x, dtype);
  const at::Tensor plain_w = reference::leaf(weight, dtype);
  const at::Tensor plain_y = reference::rms_norm(plain_x, plain_w, kEps);
  CHECK(mismatch(y, y64, rtol, 1e-7) == "");
  CHECK(worse_than_plain(y, plain_y, y64, 1e-6) == "");
  CHECK(mismatch(rstd, (x64.square().mean(-1) + kEps).rsqrt(), 1e-6) == "");

  const at::Tensor kept = residual.clone();
  const at::Tensor sum = matrix();
  const at::Tensor y_of_sum = matrix();
  const at::Tensor rstd_of_sum = fp32(x, {c.rows});
  ops::add_rms_norm_forward(sum, y_of_sum, rstd_of_sum, x, residual, weight, kEps);
  CHECK(same_bits(sum, x + residual));
  CHECK(same_bits(residual, kept));
  ops::rms_norm_forward(y, rstd, sum, weight, kEps);
  CHECK(same_bits(y, y_of_sum));
  CHECK(same_bits(rstd, rstd_of_sum));
  ops::add_rms_norm_forward(residual, y, rstd, x, residual, weight, kEps);  // sum over residual
  CHECK(same_bits(residual, sum));
  CHECK(same_bits(y, y_of_sum));

  ops::rms_norm_forward(y, rstd, x, weight, kEps);
  const auto expected = reference::gradients(y64, dy, {x64, w64});
  const auto plain = reference::gradients(plain_y, dy, {plain_x, plain_w});
  const at::Tensor start = Random(device, at::kFloat)({c.cols});
  const at::Tensor dx = matrix();
  const at::Tensor dweight = start.clone();
  ops::rms_norm_backward(dx, dweight, dy, x, weight, rstd, {});
  CHECK(mismatch(dx, expected[0], rtol, 2e-6) == "");
  CHECK(worse_than_plain(dx, plain[0], expected[0], 5e-6) == "");
  CHECK(mismatch(dweight, start.to(at::kDouble) + expected[1], 2e-6, 1e-6) == "");

  const at::Tensor dweight_again = start.clone();
  const at::Tensor in_place = dy.clone();
  ops::rms_norm_backward(in_place, dweight_again, in_place, x, weight, rstd, {});  // dx over dy
  CHECK(same_bits(in_place, dx));
  CHECK(mismatch(dweight_again, dweight, 1e-6) == "");

  ops::rms_norm_backward(dx, dweight_again, dy, x, weight, rstd, dresidual);
  CHECK(mismatch(dx, expected[0] + dresidual.to(at::kDouble), rtol, 2e-6) == "");
  const at::Tensor dweight_alone = start.clone();
  ops::rms_norm_backward(dx, dweight_alone, dy, x, weight, rstd, dresidual);
  const at::Tensor over_residual = dresidual.clone();
  ops::rms_norm_backward(over_residual, dweight_again, dy, x, weight, rstd, over_residual);
  CHECK(same_bits(over_residual, dx));

  const at::Tensor normed = matrix();  // what forward gave, to the bit, and nothing else changes
  const at::Tensor dweight_beside = start.clone();
  in_place.copy_(dy);
  ops::rms_norm_backward(in_place, dweight_beside, in_place, x, weight, rstd, dresidual, normed);
  CHECK(same_bits(normed, y));
  CHECK(same_bits(in_place, dx));
  CHECK(same_bits(dweight_beside, dweight_alone));
  ops::rms_norm_backward(in_place, dweight_beside, dy, normed.copy_(x), weight, rstd, {}, normed);  // over x
  CHECK(same_bits(normed, y));

  const at::Tensor before = dweight_again.clone();
  ops::rms_norm_backward(dx, dweight_again, at::zeros_like(dy), x, weight, rstd, dresidual);  // dy = 0
  CHECK(dx.equal(dresidual));
  CHECK(dweight_again.equal(before));
}

void check_rms_norm_special_rows(at::Device device, at::ScalarType dtype, int64_t cols) {
  CAPTURE(cols, at::toString(dtype), device.str());
  Random random(device, dtype);
  const at::Tensor x = random({7, cols});
  const at::Tensor weight = random({cols});
  x.select(0, 0).zero_();
  x.select(0, 1).fill_(3.0);
  x.select(0, 2).fill_(1e19);
  x.select(0, 3).select(0, cols / 2).fill_(std::numeric_limits<float>::quiet_NaN());
  x.select(0, 5).select(0, cols - 1).fill_(std::numeric_limits<float>::infinity());
  const at::Tensor y = at::zeros_like(x);
  const at::Tensor rstd = fp32(x, {7});
  ops::rms_norm_forward(y, rstd, x, weight, kEps);
  const at::Tensor dx = at::zeros_like(x);
  const at::Tensor dweight = fp32(x, {cols}).zero_();
  const at::Tensor dy = random({7, cols});
  ops::rms_norm_backward(dx, dweight, dy, x, weight, rstd, {});
  for (const int64_t row : {0, 1, 2, 4, 6}) {
    CAPTURE(row);
    CHECK(y.select(0, row).isfinite().all().item<bool>());
    CHECK(dx.select(0, row).isfinite().all().item<bool>());
  }
  CHECK(y.select(0, 0).count_nonzero().item<int64_t>() == 0);
  CHECK(mismatch(y.select(0, 1), weight, dtype == at::kFloat ? 2e-6 : 2e-3, 1e-6) == "");
  CHECK(y.select(0, 3).isnan().all().item<bool>());
  CHECK(dx.select(0, 3).isnan().all().item<bool>());
  CHECK(y.select(0, 5).isnan().sum().item<int64_t>() == 1);  // Inf * 0; the rest is 0

  const at::Tensor few = x.narrow(0, 6, 1).contiguous();  // the neighbours of NaN rows keep their bits
  const at::Tensor y_few = at::zeros_like(few);
  const at::Tensor rstd_few = fp32(x, {1});
  ops::rms_norm_forward(y_few, rstd_few, few, weight, kEps);
  CHECK(same_bits(y_few, y.narrow(0, 6, 1)));
}

void check_head_norm(at::Device device, at::ScalarType dtype, int64_t tokens, int64_t head_dim, int64_t first,
                     int64_t heads, int64_t total) {
  CAPTURE(tokens, head_dim, first, heads, total, at::toString(dtype), device.str());
  Random random(device, dtype);
  const int64_t width = total * head_dim;
  const at::Tensor x = random({tokens, width});
  const at::Tensor dy = random({tokens, width});
  const at::Tensor weight = random({head_dim}) * 0.2 + 1.0;
  const double rtol = tolerance(dtype);
  const auto part = [&](const at::Tensor& t) {
    return t.narrow(1, first * head_dim, heads * head_dim).unflatten(1, {heads, head_dim});
  };

  const at::Tensor y = random({tokens, width});
  const at::Tensor untouched = y.clone();
  const at::Tensor rstd = fp32(x, {tokens, heads});
  ops::head_norm_forward(y, rstd, x, first, heads, weight, kEps);
  const at::Tensor x64 = reference::leaf(part(x), at::kDouble);
  const at::Tensor w64 = reference::leaf(weight, at::kDouble);
  const at::Tensor y64 = reference::rms_norm(x64, w64, kEps);
  CHECK(mismatch(part(y), y64, rtol, 1e-7) == "");
  const at::Tensor in_place = x.clone();
  const at::Tensor rstd_again = fp32(x, {tokens, heads});
  ops::head_norm_forward(in_place, rstd_again, in_place, first, heads, weight, kEps);
  CHECK(same_bits(part(in_place), part(y)));
  CHECK(same_bits(rstd_again, rstd));
  part(untouched).copy_(part(y));
  CHECK(same_bits(y, untouched));  // nothing outside the heads was written

  const auto expected = reference::gradients(y64, part(dy), {x64, w64});
  const at::Tensor dx = dy.clone();
  const at::Tensor dweight = fp32(x, {head_dim}).fill_(0.5);
  ops::head_norm_backward(dx, dweight, dx, x, first, heads, weight, rstd);  // in place
  CHECK(mismatch(part(dx), expected[0], rtol, 2e-6) == "");
  CHECK(mismatch(dweight, expected[1] + 0.5, 2e-6, 1e-6) == "");
  const at::Tensor outside = dy.clone();
  part(outside).copy_(part(dx));
  CHECK(same_bits(dx, outside));
}

void check_rms_norm_arguments(at::Device device) {
  Random random(device, at::kFloat);
  const at::Tensor x = random({5, 64});
  const at::Tensor weight = random({64});
  const at::Tensor y = at::zeros_like(x);
  const at::Tensor rstd = fp32(x, {5});
  ops::rms_norm_forward(y, rstd, x, weight, kEps);

  const at::Tensor one = random({1, 64});
  const at::Tensor dx = at::zeros_like(x);
  const at::Tensor dx_dense = at::zeros_like(x);
  const at::Tensor dweight = fp32(x, {64}).zero_();
  const at::Tensor dweight_dense = fp32(x, {64}).zero_();
  ops::rms_norm_backward(dx, dweight, one.expand({5, 64}), x, weight, rstd, {});
  ops::rms_norm_backward(dx_dense, dweight_dense, one.expand({5, 64}).contiguous(), x, weight, rstd, {});
  CHECK(same_bits(dx, dx_dense));
  CHECK(same_bits(dweight, dweight_dense));

  CHECK_THROWS_AS(ops::rms_norm_forward(y, rstd, x, random({63}), kEps), c10::Error);
  CHECK_THROWS_AS(ops::rms_norm_forward(y, rstd, x, weight.to(at::kBFloat16), kEps), c10::Error);
  CHECK_THROWS_AS(ops::rms_norm_forward(y.narrow(0, 0, 4), rstd, x, weight, kEps), c10::Error);
  CHECK_THROWS_AS(ops::rms_norm_forward(y, rstd.narrow(0, 0, 4), x, weight, kEps), c10::Error);
  CHECK_THROWS_AS(ops::rms_norm_forward(y, rstd, x.t().contiguous().t(), weight, kEps), c10::Error);
  CHECK_THROWS_AS(ops::head_norm_forward(y, rstd, x, 1, 4, random({16}), kEps), c10::Error);
}

}  // namespace narrowgauge::test
