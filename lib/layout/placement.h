#pragma once
#include <array>
#include <vector>

#include "lib/layout/buffer.h"

namespace narrowgauge::layout {

inline constexpr int64_t kAlignment = 256;  // of offsets, bytes

// Sets every offset so that buffers whose uses overlap do not overlap in memory. Returns the slab's bytes.
int64_t place(std::vector<Buffer>& buffers);

// The operation during which most bytes are alive.
struct Peak {
  int64_t operation = 0;
  int64_t bytes = 0;
  std::array<int64_t, kCategories> by_category{};  // index: Category
};
Peak find_peak(const std::vector<Buffer>& buffers);

}  // namespace narrowgauge::layout
