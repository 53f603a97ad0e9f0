// Steps on the CPU.
#include "tests/support/catch.h"
#include "tests/train/bad_gradient.h"
#include "tests/train/gradients.h"

namespace narrowgauge::test {
namespace {

TEST_CASE("1 x 8 and 8 x 1 micro-batches give one gradient in fp32") {
  const Config config = small_config("fp32", 48);
  const at::Tensor whole = gradient(config, at::kCPU, 8);
  REQUIRE(relative_difference(gradient(config, at::kCPU, 1), whole) < 1e-6);
  REQUIRE(relative_difference(gradient(config, at::kCPU, 4), whole) < 1e-6);
}

TEST_CASE("recomputation changes no bit of the gradient") {
  Config config = small_config("fp32", 48);
  const at::Tensor kept = gradient(config, at::kCPU, 4);
  config.memory.recompute = {RecomputeLevel::block};
  REQUIRE(gradient(config, at::kCPU, 4).equal(kept));
}

TEST_CASE("a gradient that is not finite skips the step") {
  check_bad_gradient(at::kCPU, "fp32");
  check_bad_gradient(at::kCPU, "bf16");
}

}  // namespace
}  // namespace narrowgauge::test
