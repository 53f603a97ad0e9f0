#include "lib/plan/replay.h"

#include <algorithm>
#include <numeric>

namespace narrowgauge::plan {

// A layer begins and ends where buffers open or close that it alone has.
Span forward_span(const layout::Layout& layout, int64_t layer, int64_t layers) {
  using layout::Name, layout::Phase;
  const auto entry = [&](int64_t i) {
    return i < layers ? layout.at(Name::attention_normed, i, Phase::forward).first
                      : layout.at(Name::final_normed, layout::kNoLayer, Phase::forward).first;
  };
  return {entry(layer), entry(layer + 1) - 1};
}
Span backward_span(const layout::Layout& layout, int64_t layer, int64_t layers) {
  using layout::Name, layout::Phase;
  const auto end = [&](int64_t i) {
    return i < layers ? layout.at(Name::dqkv, i, Phase::backward).last
                      : layout.at(Name::dfinal, layout::kNoLayer, Phase::backward).first;
  };
  return {end(layer + 1) + 1, end(layer)};
}

std::vector<Used> replay(const layout::Layout& layout) {
  int64_t operations = 0;
  for (const layout::Buffer& buffer : layout.buffers()) operations = std::max(operations, buffer.last + 1);
  std::vector<Used> used(static_cast<size_t>(operations) + 1);
  for (const layout::Buffer& buffer : layout.buffers()) {
    const auto category = static_cast<size_t>(buffer.category);
    used[static_cast<size_t>(buffer.first)][category] += buffer.shape.bytes();
    used[static_cast<size_t>(buffer.last) + 1][category] -= buffer.shape.bytes();
  }
  for (size_t i = 1; i < used.size(); ++i) {
    for (size_t c = 0; c < used[i].size(); ++c) used[i][c] += used[i - 1][c];
  }
  used.pop_back();
  return used;
}

int64_t most_used(const std::vector<Used>& used, Span span) {
  int64_t most = 0;
  for (int64_t i = span.first; i <= span.last; ++i) {
    const Used& now = used[static_cast<size_t>(i)];
    most = std::max(most, std::accumulate(now.begin(), now.end(), int64_t{0}));
  }
  return most;
}

}  // namespace narrowgauge::plan
