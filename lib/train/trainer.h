#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "lib/config/config.h"
#include "lib/train/planner.h"
#include "lib/train/residency.h"

namespace narrowgauge::train {

struct TrainRequest {
  Config config;
  std::filesystem::path run;
  std::string resume;              // "": a new run; "auto"; or a step
  bool allow_data_change = false;  // resume although the data or its order changed
  RateSource rates{};              // of the card; empty: estimated
  // For tests: called before every try of step `step`, which fails with what it throws; and what stands for
  // reading the card's memory.
  std::function<void(int64_t step)> before_step{};
  Residency::Probe probe{};
};

// Trains into the run folder until train.steps, a budget or a signal ends it. From a signal on, what is not
// done within train.stop_grace seconds is given up: a step, an evaluation, a sample. Leaves a checkpoint of
// the last finished step, also when it throws UserError after a step of its own; the error says so when that
// checkpoint could not be written either.
void train(const TrainRequest& request);

}  // namespace narrowgauge::train
