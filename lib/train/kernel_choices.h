#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/ops/choice_file.h"
#include "lib/train/device.h"

namespace narrowgauge::train {

// How a run's kernels were chosen (ops::choices()).
struct KernelChoices {
  std::optional<ops::ChoicePlace> place;  // none on the CPU
  std::string gemm;                       // for the start report; empty on the CPU
  double products_ms = 0;                 // all products of a micro-batch; 0: they were not timed
  std::filesystem::path cache;            // of this run; empty: none
};

// Puts a run's choices into force and leaves no others. Those of the checkpoint (`saved`, its choices.json;
// empty: none) come first; with train.tune_kernels a bf16 run on a GPU takes what is missing from the disk
// cache, times the rest with `byte_limit` bytes of device memory at most, and caches it. Before the model is
// built, so that the memory is free. A line says when the checkpoint's cannot be kept. UserError when `saved`
// is malformed; `path` is for messages.
KernelChoices choose_kernels(const Config& config, const ComputeDevice& device, int64_t byte_limit,
                             const std::string& saved, const std::filesystem::path& path);

// Writes into the cache what was chosen since (attention is, with the model) and it lacks.
void remember_choices(const KernelChoices& kernels);

// Puts into force what a checkpoint has and makes the disk cache known, for a model that is only run: nothing
// is timed. `saved` and `path` as above.
void recall_choices(const ComputeDevice& device, const std::string& saved, const std::filesystem::path& path);

// choices.json for a checkpoint; empty when nothing was chosen.
std::string choices_in_force(const KernelChoices& kernels);

}  // namespace narrowgauge::train
