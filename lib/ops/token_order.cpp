#include "lib/ops/token_order.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace narrowgauge::ops {

// A radix sort from the least significant digit on; digits that all tokens share are passed over.
void token_order(const int32_t* tokens, int64_t count, int32_t* order) {
  constexpr int kBits = 11;
  constexpr uint32_t kBuckets = 1U << kBits;
  constexpr uint32_t kSign = 1U << 31;  // flipped, it makes unsigned order the signed one
  std::iota(order, order + count, 0);
  std::vector<int32_t> other(static_cast<size_t>(count));
  int32_t* from = order;
  int32_t* to = other.data();
  for (int shift = 0; shift < 32 && count > 1; shift += kBits) {
    const auto digit = [&](int32_t i) {
      return ((static_cast<uint32_t>(tokens[i]) ^ kSign) >> shift) & (kBuckets - 1);
    };
    std::array<int32_t, kBuckets> next{};
    for (int64_t i = 0; i < count; ++i) ++next[digit(static_cast<int32_t>(i))];
    if (next[digit(0)] == count) continue;
    std::exclusive_scan(next.begin(), next.end(), next.begin(), 0);
    for (int64_t i = 0; i < count; ++i) to[next[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != order) std::copy_n(from, count, order);
}

}  // namespace narrowgauge::ops
