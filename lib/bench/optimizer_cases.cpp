#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "lib/base/units.h"
#include "lib/bench/kernel_cases.h"
#include "lib/ops/adamw.h"
#include "lib/ops/gradient_norm.h"

namespace narrowgauge::bench {
namespace {

// The parameters of a model as the optimizer sees them: matrices with 8-bit states and bf16 gradients, then
// the embedding (and untied head) with fp32 states and gradients. The few norms are left out.
struct Sizes {
  explicit Sizes(const ModelConfig& model) {
    embedding = model.vocab_size * model.hidden_size * (model.tie_embeddings ? 1 : 2);
    embedding -= embedding % cuda::kAdamWBlock;
    matrices = model.parameter_count() - embedding;
    matrices -= matrices % cuda::kAdamWBlock;
  }
  int64_t matrices;
  int64_t embedding;
};

struct OptimizerTensors {
  OptimizerTensors(at::Device device, const Config& config, const std::string& master_name, bool with_states)
      : sizes(config.model) {
    const int64_t count = sizes.matrices + sizes.embedding;
    const auto zeros = [&](int64_t n, at::ScalarType type) {
      return at::zeros({n}, at::TensorOptions(type).device(device));
    };
    adamw.state = ops::make_step_state(device);
    adamw.grad = random_normal(device, {sizes.matrices}, at::kBFloat16, 1e-3);
    adamw.grad32 = random_normal(device, {sizes.embedding}, at::kFloat, 1e-3);
    scratch = zeros(ops::kNormScratch, at::kDouble);
    rules = {.max_norm = config.optim.grad_clip, .beta1 = config.optim.beta1, .beta2 = config.optim.beta2};
    if (!with_states) return;
    adamw.weights = random_normal(device, {count}, at::kBFloat16, 0.02);
    adamw.m_codes =
        at::full({sizes.matrices}, cuda::kSignedZero, at::TensorOptions(at::kByte).device(device));
    adamw.v_codes = zeros(sizes.matrices, at::kByte);
    adamw.m_scales = zeros(sizes.matrices / cuda::kAdamWBlock, at::kFloat);
    adamw.v_scales = zeros(sizes.matrices / cuda::kAdamWBlock, at::kFloat);
    adamw.m32 = zeros(sizes.embedding, at::kFloat);
    adamw.v32 = zeros(sizes.embedding, at::kFloat);
    adamw.remainder = zeros(master_name == "split" ? count : 0, at::kShort);
    adamw.master = master_name == "fp32" ? adamw.weights.to(at::kFloat) : zeros(0, at::kFloat);
    master = master_name == "split"  ? cuda::Master::split
             : master_name == "fp32" ? cuda::Master::fp32
                                     : cuda::Master::stochastic;
    ops::write_step_input(adamw.state, {.learning_rate = 1e-4F, .inverse_tokens = 1, .seed = 1, .step = 1});
    norm();  // clip factor and bias corrections
  }

  void norm() const { ops::gradient_norm(adamw.state, scratch, adamw.grad, adamw.grad32, rules); }

  void update(const OptimConfig& optim) const {
    const std::vector<cuda::AdamWRange> ranges = {{.begin = 0,
                                                   .end = sizes.matrices,
                                                   .grad_begin = 0,
                                                   .state_begin = 0,
                                                   .grad_is_low = true,
                                                   .eight_bit = true,
                                                   .decay = true},
                                                  {.begin = sizes.matrices,
                                                   .end = sizes.matrices + sizes.embedding,
                                                   .grad_begin = 0,
                                                   .state_begin = 0,
                                                   .grad_is_low = false,
                                                   .eight_bit = false,
                                                   .decay = optim.decay_embedding}};
    ops::adamw(
        adamw, ranges,
        {.beta1 = optim.beta1, .beta2 = optim.beta2, .eps = optim.eps, .weight_decay = optim.weight_decay},
        master);
  }

  Sizes sizes;
  ops::AdamWTensors adamw;
  at::Tensor scratch;
  cuda::StepRules rules{};
  cuda::Master master = cuda::Master::stochastic;
};

// Bytes a parameter: weight, gradient, both means (8-bit: codes and scales).
double adamw_bytes(const Sizes& sizes, const std::string& master) {
  const double weights = master == "split"  ? 8
                         : master == "fp32" ? 10
                                            : 4;  // with the master, read and written
  const double eight_bit = weights + 2 + 4 + 16.0 / cuda::kAdamWBlock;
  const double fp32 = weights + 4 + 16;
  return eight_bit * static_cast<double>(sizes.matrices) + fp32 * static_cast<double>(sizes.embedding);
}

std::string count_text(const Sizes& sizes) {
  return format_count(static_cast<double>(sizes.matrices + sizes.embedding));
}

}  // namespace

std::vector<Measured> optimizer_cases(at::Device device, const Config& config,
                                      const std::vector<std::string>& masters) {
  const Sizes sizes(config.model);
  std::vector<Measured> cases;
  cases.push_back(
      {.name = "gradient_norm",
       .shape = count_text(sizes),
       .bytes = 2.0 * static_cast<double>(sizes.matrices) + 4.0 * static_cast<double>(sizes.embedding),
       .prepare = [=] {
         const auto t = std::make_shared<OptimizerTensors>(device, config, "", false);
         return Prepared{.launch = [t] { t->norm(); },
                         .eager =
                             [t] {
                               (void)at::linalg_vector_norm(t->adamw.grad, 2, std::nullopt, false,
                                                            at::kFloat);
                               (void)at::linalg_vector_norm(t->adamw.grad32);
                             },
                         .footprint = 2 * t->sizes.matrices};
       }});
  for (const std::string& master : masters) {
    cases.push_back({.name = "adamw_" + master,
                     .shape = count_text(sizes),
                     .bytes = adamw_bytes(sizes, master),
                     .prepare = [=] {
                       const auto t = std::make_shared<OptimizerTensors>(device, config, master, true);
                       return Prepared{.launch = [t, optim = config.optim] { t->update(optim); },
                                       .footprint = 8 * t->sizes.matrices};
                     }});
  }
  return cases;
}

}  // namespace narrowgauge::bench
