#include "lib/train/planner.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "lib/base/cache_file.h"
#include "lib/base/log.h"
#include "lib/base/units.h"
#include "lib/ops/device.h"
#include "lib/plan/advice.h"
#include "lib/plan/tuned.h"
#include "lib/train/card.h"
#include "lib/train/evaluate.h"
#include "lib/train/gpu.h"

namespace narrowgauge::train {
namespace {

// Whose relative speeds stand for those of the CPU.
constexpr const char* kStandIn = "RTX 5080";

Config with_determinism(Config config, const std::string& deterministic) {
  config.train.deterministic = deterministic;
  return config;
}

bool is_open(const Config& config) {
  return config.train.micro_batch == 0 || config.memory.recompute.empty();
}

// Of the cache; the file may have been edited.
std::optional<plan::Choice> find_tuned(const Config& config, int64_t budget) {
  const std::optional<GpuFacts> gpu = find_gpu();
  if (!gpu) return std::nullopt;
  auto choice =
      plan::tuned_choice(read_cache_file(cache_file("tuned.json")),
                         {.card = gpu->key, .budget = budget, .config = plan::tuned_config(config)});
  const bool fits = choice && static_cast<int64_t>(choice->levels.size()) == config.model.layers &&
                    choice->micro_batch > 0 && plan::sequences(config) % choice->micro_batch == 0;
  return fits ? choice : std::nullopt;
}

}  // namespace

plan::Surroundings surroundings_of(const Config& config, const ComputeDevice& device) {
  plan::Surroundings around;
  around.evaluation_sequences = evaluation_windows(config.data.context);
  if (device.device.is_cuda())
    around.limits = ops::limits_of(at::empty({0}, at::TensorOptions(device.device).dtype(at::kByte)));
  return around;
}

Planner::Planner(const Config& asked, const ComputeDevice& device, int64_t budget, const RateSource& rates)
    : asked_(asked), budget_(budget), active_(asked.memory.plan == "auto" && budget > 0) {
  if (!active_) return;
  const bool gpu = device.device.is_cuda();
  const plan::Card card = gpu ? card_of(device) : plan::named_card(kStandIn);
  if (rates && is_open(asked_) && gpu) {
    rates_ = rates(asked_, card);
  } else {
    rates_.emplace(card, asked_.train.dtype == "fp32");
  }
  surroundings_ = surroundings_of(asked_, device);
  if (device.device.is_cuda() && is_open(asked_)) tuned_ = find_tuned(asked_, budget);
}

plan::Request Planner::request(const Config& config, int64_t budget) const {
  return {.config = config, .surroundings = surroundings_, .budget = budget, .loss_chunks = {}};
}

Config Planner::decide() const {
  if (tuned_) return plan::with_choice(asked_, *tuned_);
  if (active_ && is_open(asked_)) return plan::make_plan(request(asked_, budget_), *rates_).config;
  Config config = asked_;
  if (config.train.micro_batch == 0) config.train.micro_batch = 1;
  if (config.memory.recompute.empty()) config.memory.recompute = {RecomputeLevel::block};
  return config;
}

Config Planner::decide(bool deterministic) const {
  if (!active_ || tuned_ || !is_open(asked_)) return decide();
  const Config config = with_determinism(asked_, deterministic ? "true" : "false");
  return with_determinism(plan::make_plan(request(config, budget_), *rates_).config,
                          asked_.train.deterministic);
}

Config Planner::decide_as(const Config& before) const {
  Config config = asked_;
  const bool micro_batch =
      config.train.micro_batch == 0 && plan::sequences(config) % before.train.micro_batch == 0;
  if (micro_batch) config.train.micro_batch = before.train.micro_batch;
  if (config.memory.recompute.empty()) config.memory.recompute = before.memory.recompute;
  if (config.train.micro_batch == 0) return decide();
  if (!active_) return config;
  const plan::Plan same = of(config);
  if (same.margin() >= 0) return config;
  log_warn(
      fmt::format("the checkpoint's micro-batch and recompute levels need {}, the budget is {}: they are "
                  "chosen anew, and bits may differ from an uninterrupted run",
                  format_bytes(same.memory.bytes()), format_bytes(budget_)));
  return decide();
}

plan::Plan Planner::of(const Config& decided) const {
  return plan::plan_of(request(decided, budget_), *rates_, plan::choice_of(decided));
}

std::optional<plan::Plan> Planner::within(int64_t budget, const Config& decided) const {
  Config open = asked_;
  open.train.deterministic = decided.train.deterministic;
  open.train.micro_batch = decided.train.micro_batch;
  for (;;) {
    const plan::Request wanted = request(open, budget);
    const auto found = plan::search(wanted, *rates_);
    if (!found.empty()) return plan::plan_of(wanted, *rates_, found.front().choice);
    if (open.train.micro_batch == asked_.train.micro_batch) return std::nullopt;
    open.train.micro_batch = asked_.train.micro_batch;
  }
}

void Planner::learn(int64_t outside, const model::Transformer& model) {
  surroundings_.outside = outside;
  surroundings_.outside_measured = true;
  surroundings_.attention_scratch = [&model](int64_t sequences) {
    const ops::AttentionScratch scratch = model.attention_scratch(sequences);
    return plan::AttentionScratch{.forward = scratch.forward, .backward = scratch.backward};
  };
}

std::string Planner::shortfall(int64_t budget, const Config& decided) const {
  return plan::shortfall(request(with_determinism(asked_, decided.train.deterministic), budget), *rates_);
}

}  // namespace narrowgauge::train
