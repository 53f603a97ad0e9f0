#include "lib/layout/placement.h"

#include <algorithm>
#include <limits>

namespace narrowgauge::layout {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool meet(const Buffer& a, const Buffer& b) { return a.first <= b.last && b.first <= a.last; }

// What is kept comes first, the longest first: it lies at the bottom in the order of its release, without
// gaps when most of it is alive. The rest fits above it and where nothing is kept yet or any more: large ones
// first.
bool goes_first(const Buffer& a, const Buffer& b) {
  const bool saved_a = a.category == Category::saved;
  const bool saved_b = b.category == Category::saved;
  if (saved_a != saved_b) return saved_a;
  const int64_t life_a = a.last - a.first;
  const int64_t life_b = b.last - b.first;
  if (saved_a && life_a != life_b) return life_a > life_b;
  if (a.shape.bytes() != b.shape.bytes()) return a.shape.bytes() > b.shape.bytes();
  return a.first < b.first;
}

// The lowest offset at which `buffer` meets none of `placed`, which are sorted by offset.
int64_t lowest_gap(const std::vector<const Buffer*>& placed, const Buffer& buffer) {
  int64_t offset = 0;
  for (const Buffer* other : placed) {
    if (other->offset >= offset + buffer.shape.bytes()) break;
    if (meet(*other, buffer)) offset = std::max(offset, aligned(other->offset + other->shape.bytes()));
  }
  return offset;
}

}  // namespace

int64_t place(std::vector<Buffer>& buffers) {
  std::vector<Buffer*> order;
  for (Buffer& buffer : buffers) {
    if (buffer.shape.bytes() > 0) order.push_back(&buffer);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Buffer* a, const Buffer* b) { return goes_first(*a, *b); });
  std::vector<const Buffer*> placed;
  int64_t end = 0;
  for (Buffer* buffer : order) {
    buffer->offset = lowest_gap(placed, *buffer);
    end = std::max(end, aligned(buffer->offset + buffer->shape.bytes()));
    const auto above = std::upper_bound(placed.begin(), placed.end(), buffer->offset,
                                        [](int64_t offset, const Buffer* b) { return offset < b->offset; });
    placed.insert(above, buffer);
  }
  return end;
}

Peak find_peak(const std::vector<Buffer>& buffers) {
  int64_t operations = 0;
  for (const Buffer& buffer : buffers) operations = std::max(operations, buffer.last + 1);
  using Bytes = std::array<int64_t, kCategories>;
  std::vector<Bytes> change(static_cast<size_t>(operations) + 1);
  for (const Buffer& buffer : buffers) {
    const auto category = static_cast<size_t>(buffer.category);
    change[static_cast<size_t>(buffer.first)][category] += buffer.shape.bytes();
    change[static_cast<size_t>(buffer.last) + 1][category] -= buffer.shape.bytes();
  }
  Peak peak;
  Bytes alive{};
  for (int64_t i = 0; i < operations; ++i) {
    int64_t sum = 0;
    for (size_t c = 0; c < alive.size(); ++c) sum += alive[c] += change[static_cast<size_t>(i)][c];
    if (sum > peak.bytes) peak = {.operation = i, .bytes = sum, .by_category = alive};
  }
  return peak;
}

}  // namespace narrowgauge::layout
