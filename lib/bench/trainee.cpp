#include "lib/bench/trainee.h"

#include <random>

#include "lib/plan/time.h"
#include "lib/train/decisions.h"
#include "lib/train/graph.h"

namespace narrowgauge::bench {
namespace {

constexpr int kBatches = 4;  // different global batches, used in turn
constexpr int64_t kDocument = 1024;
constexpr float kLearningRate = 1e-4F;

// What the plan says of the step; null without one.
Json predicted(const std::optional<plan::Plan>& plan) {
  if (!plan) return nullptr;
  return {{"device_bytes", plan->memory.bytes()},
          {"outside_bytes", plan->memory.at_peak()[plan::Kind::outside]},
          {"tokens_per_second", plan->tokens_per_second},
          {"estimated", plan->estimated}};
}

}  // namespace

Trainee::Trainee(Machine& machine, const Config& config)
    : sequences_(config.train.tokens_per_step / config.data.context),
      cuda_graphs_(train::use_cuda_graphs(config.train.cuda_graphs, machine.device())) {
  const at::Device device = machine.device();
  const train::Planner planner(config, machine.compute(), machine.memory().budget(), {});
  const train::Decisions decisions =
      train::decide(planner, planner.decide(), machine.compute(), machine.memory(), "", {});
  config_ = decisions.config;
  algorithms_ = decisions.kernels.gemm;
  determinism_ = decisions.determinism.why;
  if (planner.active()) plan_ = planner.of(config_);
  model_ = train::make_model(config_, device);
  train::remember_choices(decisions.kernels);
  train::set_initial_weights(*model_, config_);
  optimizer_ = train::make_optimizer(config_, *model_);
  optimizer_->reset_master();
  model_->reserve(layout::Purpose::train, config_.train.micro_batch, config_.data.context);
  step_ = std::make_unique<train::Step>(*model_, *optimizer_, sequences_, config_.train.micro_batch,
                                        cuda_graphs_);
  make_batches();
}

void Trainee::make_batches() {
  const int64_t context = config_.data.context;
  const at::Device device = model_->options().device;
  std::mt19937_64 random(static_cast<uint64_t>(config_.train.seed));
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(config_.model.vocab_size - 1));
  const auto numbers = [&](const std::function<int32_t(int64_t)>& value) {
    at::Tensor tensor = train::host_tensor({sequences_ * context}, at::kInt, device);
    auto* data = tensor.data_ptr<int32_t>();
    for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = value(i);
    storage_.push_back(tensor);
    return data;
  };
  for (int i = 0; i < kBatches; ++i) {
    data::GlobalBatch batch;
    batch.sequences = sequences_;
    batch.context = context;
    batch.tokens = numbers([&](int64_t) { return token(random); });
    batch.targets = numbers([&](int64_t) { return token(random); });
    batch.counted_targets = sequences_ * context;
    if (config_.data.document_mask) {
      batch.positions = numbers([&](int64_t t) { return static_cast<int32_t>(t % context % kDocument); });
      std::vector<int32_t> starts;
      for (int64_t t = 0; t < context; t += kDocument) starts.push_back(static_cast<int32_t>(t));
      batch.document_starts.assign(static_cast<size_t>(sequences_), starts);
    }
    batches_.push_back(std::move(batch));
  }
}

void Trainee::run_step() {
  data::GlobalBatch& batch = batches_[static_cast<size_t>(steps_ % kBatches)];
  batch.step = steps_;
  step_->run(batch, {.learning_rate = kLearningRate,
                     .inverse_tokens = 1.0F / static_cast<float>(batch.counted_targets),
                     .seed = static_cast<uint64_t>(config_.train.seed),
                     .step = static_cast<uint64_t>(steps_)});
  ++steps_;
}

train::CopySpeeds Trainee::read_memory() const { return train::read_resident(*model_, *optimizer_); }

Json Trainee::describe() const {
  return {{"parameters", config_.model.parameter_count()},
          {"context", config_.data.context},
          {"micro_batch", config_.train.micro_batch},
          {"tokens_per_step", tokens_per_step()},
          {"dtype", config_.train.dtype},
          {"master", config_.train.dtype == "fp32" ? "none" : config_.optim.master},
          {"grad_dtype", config_.memory.grad_dtype},
          {"deterministic", config_.train.is_deterministic()},
          {"determinism", determinism_},
          {"attention", ops::attention_kernel_name(model_->attention_choice().kernel)},
          {"recompute", plan::levels_text(plan::fixed_levels(config_))},
          {"cuda_graphs", cuda_graphs_},
          {"algorithms", algorithms_},
          {"slab_bytes", model_->slab_bytes()},
          {"loss_chunk", config_.memory.loss_chunk},
          {"document_mask", config_.data.document_mask},
          {"predicted", predicted(plan_)},
          {"flops_per_token", plan::model_flops_per_token(config_.model, config_.data.context)}};
}

Json Trainee::outcome() const {
  const train::StepResult result = step_->latest();
  return {{"loss", result.loss_sum / static_cast<double>(tokens_per_step())},
          {"skipped", result.state.skipped_total}};
}

}  // namespace narrowgauge::bench
