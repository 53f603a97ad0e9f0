#pragma once
#include <functional>
#include <optional>

#include "lib/config/config.h"
#include "lib/model/transformer.h"
#include "lib/plan/plan.h"
#include "lib/train/device.h"

namespace narrowgauge::train {

// How fast a card is on a config's shapes: measured, or estimated.
using RateSource = std::function<plan::Rates(const Config&, const plan::Card&)>;

// What lib/layout cannot know of a run on this device; attention's scratch is estimated.
plan::Surroundings surroundings_of(const Config& config, const ComputeDevice& device);

// Decides what a config leaves open, and decides again for a running model that must get along with less.
class Planner {
 public:
  // `asked`: the config as its author wrote it. `budget`: device bytes of the whole process. Without rates
  // they are estimated. Plans on the CPU, where `budget` counts tensors alone, only when it is not 0.
  Planner(const Config& asked, const ComputeDevice& device, int64_t budget, const RateSource& rates);

  // False: memory.plan is off, or there is no budget to keep.
  [[nodiscard]] bool active() const { return active_; }

  // The choice that `narrowgauge tune` found the fastest for this config, card and budget.
  [[nodiscard]] const std::optional<plan::Choice>& tuned() const { return tuned_; }

  // The config with the choice of tune, or else the fastest that fits, in the place of every auto; where the
  // planner is not active micro-batch 1 and block. train.deterministic of the answer is as asked. UserError
  // when nothing fits; a config without auto is taken as it stands, whether it fits or not.
  [[nodiscard]] Config decide() const;
  // The same for kernels that are deterministic or not.
  [[nodiscard]] Config decide(bool deterministic) const;
  // What is auto as `before` (a checkpoint's config) had it, so that the run keeps its bits; as decide()
  // says, with a line that tells it, where that does not fit any more.
  [[nodiscard]] Config decide_as(const Config& before) const;

  // The plan of a config that leaves nothing open, whether it fits or not.
  [[nodiscard]] plan::Plan of(const Config& decided) const;
  // The fastest plan within `budget` for a run that is under way as `decided`: with its micro-batch and loss
  // chunk, which keep its bits, where one fits. Nothing: none does.
  [[nodiscard]] std::optional<plan::Plan> within(int64_t budget, const Config& decided) const;

  // From now on counts with what was measured: device bytes outside the allocator, attention's scratch of
  // `model`, which must outlive the planner.
  void learn(int64_t outside, const model::Transformer& model);
  // UserError's text for a run that is under way as `decided` and cannot go on within `budget`.
  [[nodiscard]] std::string shortfall(int64_t budget, const Config& decided) const;

 private:
  [[nodiscard]] plan::Request request(const Config& config, int64_t budget) const;

  Config asked_;
  int64_t budget_;
  bool active_;
  plan::Surroundings surroundings_;
  std::optional<plan::Rates> rates_;
  std::optional<plan::Choice> tuned_;
};

}  // namespace narrowgauge::train
