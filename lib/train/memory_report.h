#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lib/train/session.h"

namespace narrowgauge::train {

// Bytes of one kind of memory: what the config says and what was found. Missing: cannot be said, or cannot be
// told from other memory.
struct MemoryRow {
  const char* category;
  std::optional<int64_t> predicted;
  std::optional<int64_t> measured;
};

// Of a training run after its first steps: weights, gradients, optimizer; the slab and what is in it when
// most of it is used (saved activations, temporaries, loss, workspaces); other tensors; what lies outside the
// allocator (on a GPU).
std::vector<MemoryRow> memory_by_category(const Session& session, const MemoryPeaks& peaks);

// "weights 1.8 GiB (1.8 GiB), ...": predicted, then measured in brackets.
std::string memory_text(const std::vector<MemoryRow>& rows);

}  // namespace narrowgauge::train
