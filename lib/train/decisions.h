#pragma once
#include <filesystem>
#include <string>

#include "lib/train/determinism.h"
#include "lib/train/kernel_choices.h"
#include "lib/train/planner.h"

namespace narrowgauge::train {

// All that a run decides before its model is built.
struct Decisions {
  Config config;  // nothing is auto in it; train.deterministic is true or false
  KernelChoices kernels;
  Determinism determinism;
};

// Chooses kernels and determinism for `decided`, the planner's answer, and puts them into force. Where
// train.deterministic is auto and the answer is no, a new run is planned again, since kernels that are not
// deterministic need less memory. `saved` and `path` as in choose_kernels.
Decisions decide(const Planner& planner, const Config& decided, const ComputeDevice& device,
                 const DeviceMemory& memory, const std::string& saved, const std::filesystem::path& path);

}  // namespace narrowgauge::train
