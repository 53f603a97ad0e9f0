#include "lib/plan/slab_bound.h"

#include <algorithm>

#include "lib/plan/replay.h"

namespace narrowgauge::plan {

SlabBound::SlabBound(const MemoryModel& model, int64_t micro_batch, int64_t loss_chunk) {
  constexpr int64_t kLayers = 3;  // the one in the middle has neighbours of its own level
  constexpr int64_t kMiddle = 1;
  ModelConfig small = model.config().model;
  small.layers = kLayers;
  for (size_t i = 0; i < kLevelCount; ++i) {
    const Choice choice{.micro_batch = micro_batch,
                        .levels = std::vector<RecomputeLevel>(kLayers, kLevels[i]),
                        .loss_chunk = loss_chunk};
    const layout::Layout pass(small, model.shape(choice));
    const std::vector<Used> used = replay(pass);
    kept_[i] = pass.kept_bytes(kMiddle);
    // In its first operation the layer still reads what the one before it gave.
    Span forward = forward_span(pass, kMiddle, kLayers);
    ++forward.first;
    working_[i] =
        std::max(most_used(used, forward), most_used(used, backward_span(pass, kMiddle, kLayers))) - kept_[i];
    const int64_t final_entry = forward_span(pass, kLayers - 1, kLayers).last + 1;
    const int64_t backward = backward_span(pass, kLayers - 1, kLayers).first;
    loss_ = most_used(used, {.first = final_entry + 1, .last = backward - 1}) - kLayers * kept_[i];
  }
}

int64_t SlabBound::bytes(const LevelCounts& counts) const {
  int64_t kept = 0;
  int64_t most = 0;
  for (size_t i = kLevelCount; i-- > 0;) {
    if (counts[i] == 0) continue;
    most = std::max(most, kept + (counts[i] - 1) * kept_[i] + working_[i]);
    kept += counts[i] * kept_[i];
  }
  return std::max(most, kept + loss_);
}

}  // namespace narrowgauge::plan
