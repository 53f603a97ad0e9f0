#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "lib/config/config.h"
#include "lib/data/tokenizer.h"
#include "lib/model/transformer.h"
#include "lib/train/device.h"

namespace narrowgauge::train {

// A checkpoint's weights, ready to run forward.
struct TrainedModel {
  int64_t step = 0;
  Config config;                         // of the checkpoint, with the device asked for
  std::unique_ptr<DeviceMemory> memory;  // the cap of memory.budget
  std::unique_ptr<model::Transformer> model;
  std::shared_ptr<const data::Tokenizer> tokenizer;  // null: the run has none
  bool tokens_are_bytes = false;                     // every token is one byte of text
};

// `step`: "" for the newest complete checkpoint. `device`: "" for the run's own. Checksums are verified.
// UserError: no such run or checkpoint, damaged files, no such device.
TrainedModel load_trained_model(const std::filesystem::path& run, const std::string& step,
                                const std::string& device);

}  // namespace narrowgauge::train
