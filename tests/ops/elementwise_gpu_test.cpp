// The kernels of the norms, RoPE and SwiGLU on the GPU, planned for the card at hand and for an RTX 5080.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <cuda_runtime_api.h>

#include "lib/ops/device.h"
#include "lib/ops/rms_norm.h"
#include "lib/ops/rope.h"
#include "lib/ops/swiglu.h"
#include "tests/ops/rms_norm_checks.h"
#include "tests/ops/rope_checks.h"
#include "tests/ops/swiglu_checks.h"
#include "tests/support/catch.h"
#include "tests/support/close.h"
#include "tests/support/random.h"
#include "tests/support/reference.h"

namespace narrowgauge::test {
namespace {

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16};
const at::Device kGpu(at::kCUDA, 0);

// Runs `body` under this card's limits and under the RTX 5080's.
template <class F>
void on_both_cards(F body) {
  for (const cuda::DeviceLimits* limits :
       {static_cast<const cuda::DeviceLimits*>(nullptr), &cuda::kRtx5080Limits}) {
    CAPTURE(limits == nullptr ? "this card" : "RTX 5080");
    ops::override_limits(limits);
    for (const at::ScalarType dtype : kTypes) body(dtype);
    ops::override_limits(nullptr);
  }
}

bool has_memory(double gib) {
  size_t free = 0;
  size_t total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  if (static_cast<double>(free) > gib * (1 << 30)) return true;
  WARN("skipped: needs " << gib << " GiB of free device memory");
  return false;
}

TEST_CASE("GPU norm equals its reference", "[sanitize]") {
  on_both_cards([](at::ScalarType dtype) {
    // One to eight vectors a lane, one to 128 lanes a row, and rows too long or too odd for registers.
    for (const int64_t cols : {1,    8,    16,   41,   112,  256,  300,  512,  768,  1000, 1024,
                               1280, 1536, 1792, 2047, 2048, 2049, 4096, 5120, 8192, 8200, 16384}) {
      check_rms_norm(kGpu, dtype, {199, cols});
    }
    for (const int64_t rows : {0, 1, 3}) check_rms_norm(kGpu, dtype, {rows, 1792});
    check_rms_norm(kGpu, dtype, {4099, 1792});
    check_rms_norm(kGpu, dtype, {77, 512, 64});  // strided, still aligned
    check_rms_norm(kGpu, dtype, {77, 512, 3});   // strided, unaligned rows
    for (const int64_t cols : {41, 112, 1792, 4096}) check_rms_norm_special_rows(kGpu, dtype, cols);
  });
  check_rms_norm_arguments(kGpu);
}

TEST_CASE("GPU head norm touches its heads alone", "[sanitize]") {
  on_both_cards([](at::ScalarType dtype) {
    check_head_norm(kGpu, dtype, 333, 112, 0, 16, 48);
    check_head_norm(kGpu, dtype, 333, 112, 16, 16, 48);
    check_head_norm(kGpu, dtype, 77, 128, 8, 2, 12);
    check_head_norm(kGpu, dtype, 77, 41, 2, 3, 7);
    check_head_norm(kGpu, dtype, 1, 8, 1, 1, 3);
  });
}

TEST_CASE("GPU weight gradient over 131073 rows is accurate and repeatable") {
  on_both_cards([](at::ScalarType dtype) {
    Random random(kGpu, dtype);
    const int64_t rows = 131073;
    for (const int64_t cols : {112, 41}) {
      const at::Tensor x = random({rows, cols});
      const at::Tensor dy = random({rows, cols}) + 0.5;
      const at::Tensor weight = random({cols});
      const auto options = x.options().dtype(at::kFloat);
      const at::Tensor rstd = at::empty({rows}, options);
      const at::Tensor dx = at::empty_like(x);
      const at::Tensor again = at::empty_like(x);
      ops::rms_norm_forward(dx, rstd, x, weight, 1e-5);
      const at::Tensor dweight = at::zeros({cols}, options);
      const at::Tensor dweight_again = at::zeros({cols}, options);
      ops::rms_norm_backward(dx, dweight, dy, x, weight, rstd, {});
      ops::rms_norm_backward(again, dweight_again, dy, x, weight, rstd, {});
      const at::Tensor x64 = x.to(at::kDouble);
      const at::Tensor xhat = x64 * (x64.square().mean(-1, true) + 1e-5).rsqrt();
      CHECK(mismatch(dweight, (dy.to(at::kDouble) * xhat).sum(0), 1e-5, 1e-3) == "");
      CHECK(same_bits(dweight, dweight_again));
      CHECK(same_bits(dx, again));
    }
  });
}

TEST_CASE("GPU RoPE equals complex rotation", "[sanitize]") {
  on_both_cards([](at::ScalarType dtype) {
    for (const int64_t dim : {2, 8, 64, 80, 96, 112, 128}) {
      check_rope(kGpu, dtype, {.tokens = 333, .heads = 20, .values = 4, .head_dim = dim});
    }
    for (const int64_t heads : {1, 3, 5, 32}) {
      check_rope(kGpu, dtype, {.tokens = 65, .heads = heads, .values = 1, .head_dim = 112, .theta = 5e5});
    }
    check_rope(kGpu, dtype, {.tokens = 65, .heads = 6, .values = 2, .head_dim = 112, .gap = 16});
    check_rope(kGpu, dtype, {.tokens = 65, .heads = 6, .values = 2, .head_dim = 112, .gap = 3});
    check_rope(kGpu, dtype, {.tokens = 0, .heads = 2, .values = 1, .head_dim = 8});
    check_rope(kGpu, dtype, {.tokens = 1, .heads = 2, .values = 0, .head_dim = 8});
  });
  check_rope_properties(kGpu);
}

TEST_CASE("GPU SwiGLU equals its reference", "[sanitize]") {
  on_both_cards([](at::ScalarType dtype) {
    for (const int64_t cols : {1, 7, 8, 41, 4736, 11009}) check_swiglu(kGpu, dtype, 67, cols);
    check_swiglu(kGpu, dtype, 0, 16);
    check_swiglu_extremes(kGpu, dtype);
  });
}

// Beyond 2^31 elements: the last rows of a large tensor have the bits of the same rows on their own.
TEST_CASE("GPU norm reaches beyond 2^31 elements") {
  if (!has_memory(24)) return;
  const int64_t rows = 1'200'001;
  const int64_t cols = 1792;
  const at::Tensor weight = Random(kGpu, at::kBFloat16)({cols});
  const at::Tensor few = Random(kGpu, at::kBFloat16)({64, cols});
  const at::Tensor x = at::zeros({rows, cols}, few.options());
  x.narrow(0, rows - 64, 64).copy_(few);
  const at::Tensor y = at::empty_like(x);
  const at::Tensor rstd = at::empty({rows}, few.options().dtype(at::kFloat));
  ops::rms_norm_forward(y, rstd, x, weight, 1e-5);
  const at::Tensor y_few = at::empty_like(few);
  const at::Tensor rstd_few = at::empty({64}, rstd.options());
  ops::rms_norm_forward(y_few, rstd_few, few, weight, 1e-5);
  CHECK(same_bits(y.narrow(0, rows - 64, 64), y_few));

  const at::Tensor dweight = at::zeros({cols}, rstd.options());
  const at::Tensor dweight_few = at::zeros({cols}, rstd.options());
  ops::rms_norm_backward(y, dweight, x, x, weight, rstd, {});
  ops::rms_norm_backward(y_few, dweight_few, few, few, weight, rstd_few, {});
  CHECK(same_bits(y.narrow(0, rows - 64, 64), y_few));
  CHECK(mismatch(dweight, dweight_few, 1e-6) == "");
}

TEST_CASE("GPU SwiGLU and RoPE reach beyond 2^31 elements") {
  if (!has_memory(24)) return;
  const at::Tensor few = Random(kGpu, at::kBFloat16)({64, 2 * 4736});
  const int64_t rows = 460'001;
  const at::Tensor gate_up = at::zeros({rows, few.size(1)}, few.options());
  gate_up.narrow(0, rows - 64, 64).copy_(few);
  const at::Tensor out = at::empty({rows, 4736}, few.options());
  const at::Tensor out_few = at::empty({64, 4736}, few.options());
  ops::swiglu_forward(out, gate_up);
  ops::swiglu_forward(out_few, few);
  CHECK(same_bits(out.narrow(0, rows - 64, 64), out_few));
  ops::swiglu_backward(gate_up, {}, out, gate_up);
  const at::Tensor dfew = few.clone();
  ops::swiglu_backward(dfew, {}, out_few, few);
  CHECK(same_bits(gate_up.narrow(0, rows - 64, 64), dfew));

  const ops::RopeTable table = ops::make_rope_table(64, 128, 1e4, kGpu);
  gate_up.narrow(0, rows - 64, 64).copy_(few);
  const at::Tensor turned = few.clone();
  const at::Tensor positions = at::arange(rows, few.options().dtype(at::kInt)).sub_(rows % 64).remainder_(64);
  ops::rope_in_place(gate_up, table, 72, 128, 64, positions, false);
  ops::rope_in_place(turned, table, 72, 128, 64, {}, false);
  CHECK(same_bits(gate_up.narrow(0, rows - 64, 64), turned));
}

}  // namespace
}  // namespace narrowgauge::test
