#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "lib/layout/layout.h"

namespace narrowgauge::plan {

// Bytes in use, by layout::Category.
using Used = std::array<int64_t, layout::kCategories>;

// At every operation of a pass.
std::vector<Used> replay(const layout::Layout& layout);

// Operations, both ends included.
struct Span {
  int64_t first;
  int64_t last;
};

// Of one layer in a training pass of `layers`.
Span forward_span(const layout::Layout& layout, int64_t layer, int64_t layers);
Span backward_span(const layout::Layout& layout, int64_t layer, int64_t layers);

// The most bytes in use at an operation of the span.
int64_t most_used(const std::vector<Used>& used, Span span);

}  // namespace narrowgauge::plan
