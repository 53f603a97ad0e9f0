#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

namespace narrowgauge::train {

// Writes a checkpoint of a run as a Hugging Face folder, with the run's tokenizer; works on the CPU alone.
// `step`: "" for the newest complete checkpoint. `dtype`: kBFloat16 or kFloat; fp32 has the exact master
// weights where the run keeps them (optim.master split or fp32). UserError: no such run or checkpoint,
// damaged files, `folder` in use or not writable.
void export_checkpoint(const std::filesystem::path& run, const std::string& step, at::ScalarType dtype,
                       const std::filesystem::path& folder);

}  // namespace narrowgauge::train
