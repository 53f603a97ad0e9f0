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

// Trains into the run folder until train.steps, a budget or a signal ends it; always leaves a checkpoint of
// the last finished step. Throws UserError.
void train(const TrainRequest& request);

}  // namespace narrowgauge::train
