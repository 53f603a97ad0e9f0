#pragma once
#include <filesystem>
#include <string>

#include "lib/train/checkpoint.h"

// state.json: the numbers of a checkpoint and the identity of its run.
namespace narrowgauge::train {

inline constexpr int64_t kCheckpointFormat = 1;

// Floats go in as bit patterns, so that NaN and every last bit come back.
std::string format_state(const CheckpointState& state);

// Fills everything but config and tensors. UserError when malformed or of a newer format; `path` is for
// messages.
void parse_state(const std::string& text, const std::filesystem::path& path, CheckpointState& state);

}  // namespace narrowgauge::train
