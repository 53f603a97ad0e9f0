// Steps on the CPU.
#include "lib/layout/static_bytes.h"
#include "lib/train/setup.h"
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

TEST_CASE("static bytes are those that model and optimizer allocate") {
  for (const char* dtype : {"fp32", "bf16"}) {
    for (const char* master : {"stochastic", "split", "fp32"}) {
      Config config = small_config(dtype, 48);
      config.optim.master = master;
      config.model.qk_norm = true;
      config.model.tie_embeddings = false;
      const auto model = train::make_model(config, at::kCPU);
      const auto optimizer = train::make_optimizer(config, *model);
      const auto element = config.train.dtype == "bf16" ? layout::Element::bf16 : layout::Element::fp32;
      const layout::StaticBytes bytes = layout::static_bytes(config.model, config.optim, element, element);
      const model::ParameterArena& arena = model->arena();
      REQUIRE(bytes.weights == static_cast<int64_t>(arena.weights().nbytes()));
      REQUIRE(bytes.gradients == static_cast<int64_t>(arena.grad().nbytes()));
      REQUIRE(bytes.gradients32 == static_cast<int64_t>(arena.grad32().nbytes()));
      REQUIRE(bytes.optimizer() == optimizer->bytes());
    }
  }
}

TEST_CASE("a gradient that is not finite skips the step") {
  check_bad_gradient(at::kCPU, "fp32");
  check_bad_gradient(at::kCPU, "bf16");
}

}  // namespace
}  // namespace narrowgauge::test
