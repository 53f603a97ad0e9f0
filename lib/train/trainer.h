#pragma once
#include <filesystem>
#include <string>

#include "lib/config/config.h"

namespace narrowgauge::train {

struct TrainRequest {
  Config config;
  std::filesystem::path run;
  std::string resume;              // "": a new run; "auto"; or a step
  bool allow_data_change = false;  // resume although the data or its order changed
};

// Trains into the run folder until train.steps, a budget or a signal ends it. From a signal on, what is not
// done within train.stop_grace seconds is given up: a step, an evaluation, a sample. Leaves a checkpoint of
// the last finished step, also when it throws UserError after a step of its own; the error says so when that
// checkpoint could not be written either.
void train(const TrainRequest& request);

}  // namespace narrowgauge::train
