#include "tests/ops/swiglu_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tensor.h>

#include <limits>

#include "lib/ops/swiglu.h"
#include "tests/support/catch.h"
#include "tests/support/close.h"
#include "tests/support/random.h"
#include "tests/support/reference.h"

namespace narrowgauge::test {

void check_swiglu(at::Device device, at::ScalarType dtype, int64_t rows, int64_t cols) {
  CAPTURE(rows, cols, at::toString(dtype), device.str());
  Random random(device, dtype);
  const at::Tensor gate_up = random({rows, 2 * cols}) * 2.0;
  const at::Tensor dout = random({rows, cols});
  const double rtol = dtype == at::kFloat ? 1e-6 : 0x1p-8;

  const at::Tensor out = at::empty_like(dout);
  ops::swiglu_forward(out, gate_up);
  const at::Tensor x = reference::leaf(gate_up, at::kDouble);
  const at::Tensor expected = reference::swiglu(x);
  const at::Tensor plain_x = reference::leaf(gate_up, dtype);
  const at::Tensor plain = reference::swiglu(plain_x);
  CHECK(mismatch(out, expected, rtol, 1e-7) == "");
  CHECK(worse_than_plain(out, plain, expected, 2e-6) == "");

  const at::Tensor dgate_up = at::empty_like(gate_up);
  const at::Tensor recomputed = at::empty_like(out);
  ops::swiglu_backward(dgate_up, recomputed, dout, gate_up);
  const at::Tensor gradient = reference::gradients(expected, dout, {x})[0];
  CHECK(mismatch(dgate_up, gradient, rtol, 1e-7) == "");
  CHECK(worse_than_plain(dgate_up, reference::gradients(plain, dout, {plain_x})[0], gradient, 2e-6) == "");
  CHECK(same_bits(recomputed, out));

  const at::Tensor in_place = gate_up.clone();
  ops::swiglu_backward(in_place, {}, dout, in_place);
  CHECK(same_bits(in_place, dgate_up));
  in_place.copy_(gate_up);
  const at::Tensor dout_then_out = dout.clone();
  ops::swiglu_backward(in_place, dout_then_out, dout_then_out, in_place);
  CHECK(same_bits(in_place, dgate_up));
  CHECK(same_bits(dout_then_out, out));
}

void check_swiglu_extremes(at::Device device, at::ScalarType dtype) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const at::TensorOptions options = at::TensorOptions().device(device).dtype(dtype);
  const at::Tensor gate =
      at::tensor({0.0f, 20.0f, -20.0f, 88.0f, -88.0f, 1e4f, -1e4f, kInf, -kInf, kNan, 1.0f, -1.0f})
          .to(options);
  const int64_t count = gate.size(0);
  const at::Tensor gate_up = at::full({2, 2 * count}, 2.0, options);
  gate_up.narrow(1, 0, count).copy_(gate.expand({2, count}));
  const at::Tensor out = at::empty({2, count}, options);
  ops::swiglu_forward(out, gate_up);
  CHECK(mismatch(out, reference::swiglu(gate_up.to(at::kDouble)), 2e-3) == "");  // -Inf gives NaN, as in ATen

  const at::Tensor dgate_up = at::empty_like(gate_up);
  ops::swiglu_backward(dgate_up, {}, at::full({2, count}, 1.0, options), gate_up);
  const at::Tensor finite = dgate_up.narrow(1, 0, count).index_select(1, gate.isfinite().nonzero().flatten());
  CHECK(finite.isfinite().all().item<bool>());
  const at::Tensor dgate = dgate_up.to(at::kDouble).select(0, 0);
  const auto near = [&](int64_t index, double value) {
    CAPTURE(index, value);
    CHECK(dgate.select(0, index).item<double>() == Approx(value).margin(1e-6));
  };
  near(0, 1.0);  // up * silu'(0) = 2 * 0.5
  near(1, 2.0);  // silu' -> 1
  near(5, 2.0);
  near(6, 0.0);
  CHECK(dgate.select(0, 9).isnan().item<bool>());
  CHECK(dgate.select(0, 10).isfinite().item<bool>());  // the NaN stays where it is

  CHECK_THROWS_AS(ops::swiglu_forward(out, gate_up.narrow(1, 0, count)), c10::Error);
  CHECK_THROWS_AS(ops::swiglu_forward(out.t(), gate_up), c10::Error);
}

}  // namespace narrowgauge::test
