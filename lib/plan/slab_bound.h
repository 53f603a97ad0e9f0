#pragma once
#include "lib/plan/memory.h"

namespace narrowgauge::plan {

// The bytes of a training slab as a function of the numbers of layers at each level, when those are sorted:
// the layout's peak without its placement, so that the slab is never smaller. Read off layouts of three
// layers.
class SlabBound {
 public:
  SlabBound(const MemoryModel& model, int64_t micro_batch, int64_t loss_chunk);
  [[nodiscard]] int64_t bytes(const LevelCounts& counts) const;

 private:
  std::array<int64_t, kLevelCount> kept_{};  // a layer
  std::array<int64_t, kLevelCount>
      working_{};  // the most that a layer needs while it runs, its kept included
  int64_t loss_ = 0;
};

}  // namespace narrowgauge::plan
