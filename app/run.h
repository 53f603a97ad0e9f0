#pragma once
#include <filesystem>

#include "app/cli.h"
#include "lib/train/trained_model.h"

namespace narrowgauge::app {

// The positional "run" of commands that read one. UserError when it is no folder.
std::filesystem::path run_folder(const Arguments& arguments);

// The model of that run, as --step and --device say. UserErrors name the options.
train::TrainedModel load_model(const Arguments& arguments);

}  // namespace narrowgauge::app
