#include "tests/train/bad_gradient.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lib/train/setup.h"
#include "lib/train/step.h"
#include "tests/support/catch.h"
#include "tests/train/gradients.h"

namespace narrowgauge::test {

void check_bad_gradient(c10::Device device, const std::string& dtype, bool cuda_graphs) {
  const Config config = small_config(dtype, 32);
  const auto model = train::make_model(config, device);
  train::set_initial_weights(*model, config);
  const auto optimizer = train::make_optimizer(config, *model);
  optimizer->reset_master();
  train::Step step(*model, *optimizer, 8, 4, cuda_graphs);
  std::vector<int32_t> tokens(8 * 32, 5);
  data::GlobalBatch batch;
  batch.sequences = 8;
  batch.context = 32;
  batch.tokens = tokens.data();
  batch.targets = tokens.data();
  const auto run = [&](uint64_t number) {
    REQUIRE(
        step.run(batch, {.learning_rate = 1e-2F, .inverse_tokens = 1.0F / 256, .seed = 1, .step = number}));
  };
  const at::Tensor weights = model->arena().weights();

  run(0);
  REQUIRE(step.latest().state.adam_step == 1);
  const at::Tensor poisoned = model->arena().weight(model->arena().slot("norm.weight")).select(0, 3);
  const at::Tensor healthy = poisoned.clone();
  poisoned.fill_(std::numeric_limits<double>::infinity());
  const at::Tensor before = weights.clone();
  run(1);
  const train::StepResult bad = step.latest();
  REQUIRE_FALSE(std::isfinite(bad.state.grad_norm));
  REQUIRE(bad.state.skip == 1);
  REQUIRE(bad.state.adam_step == 1);
  REQUIRE(bad.state.skipped_in_row == 1);
  REQUIRE(weights.equal(before));
  for (const auto& [name, tensor] : optimizer->state_tensors()) {
    INFO(name);
    REQUIRE((!tensor.is_floating_point() || tensor.isfinite().all().item<bool>()));
  }

  poisoned.copy_(healthy);
  const at::Tensor mended = weights.clone();
  run(2);
  const train::StepResult good = step.latest();
  REQUIRE(good.state.skip == 0);
  REQUIRE(good.state.adam_step == 2);
  REQUIRE(good.state.skipped_in_row == 0);
  REQUIRE(good.state.skipped_total == 1);
  REQUIRE_FALSE(weights.equal(mended));
}

}  // namespace narrowgauge::test
