#include "app/run.h"

#include <fmt/format.h>

#include "lib/base/error.h"
#include "lib/train/checkpoint.h"
#include "lib/train/device.h"
#include "lib/train/run_folder.h"

namespace narrowgauge::app {
namespace {

// UserError when `device` is cuda and there is none; `source` says where the word comes from.
void require_device(const std::string& device, const std::string& source) {
  if (device != "cuda") return;
  try {
    train::open_device(device);
  } catch (const UserError&) {
    throw UserError(fmt::format("{} is cuda, but {}; give --device cpu or --device auto", source,
                                NARROWGAUGE_CUDA ? "no CUDA device answers (check nvidia-smi and the driver)"
                                                 : "this program was built without CUDA"));
  }
}

}  // namespace

std::filesystem::path run_folder(const Arguments& arguments) {
  const std::filesystem::path run = arguments.text("run");
  std::error_code ignored;
  if (!std::filesystem::is_directory(run, ignored)) {
    throw UserError(fmt::format("{}: no such run folder; give the folder that narrowgauge train got as --run",
                                run.string()));
  }
  return run;
}

train::TrainedModel load_model(const Arguments& arguments) {
  const std::filesystem::path run = run_folder(arguments);
  const std::string step = arguments.text("step"), device = arguments.text("device");
  if (arguments.given("device")) {
    if (device != "auto" && device != "cuda" && device != "cpu") {
      throw UserError(fmt::format("--device: \"{}\" is not allowed: give auto, cuda or cpu", device));
    }
    require_device(device, "--device");
  } else {
    const train::CheckpointStore store(run);
    const Config config = store.read_state(train::find_checkpoint(store, run, step)).config;
    require_device(config.train.device, "train.device of the run");
  }
  return train::load_trained_model(run, step, device);
}

}  // namespace narrowgauge::app
