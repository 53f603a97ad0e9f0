#include "lib/layout/ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "cuda/adamw.h"

namespace narrowgauge::layout {
namespace {

constexpr int64_t kBlock = cuda::kAdamWBlock;

UpdateRange rules_of(const TensorSlot& slot, const OptimConfig& config) {
  if (slot.offset < 0 || slot.grad_offset < 0 || slot.count < 0 || slot.offset % kBlock != 0 ||
      slot.grad_offset % kBlock != 0) {
    throw std::invalid_argument(
        fmt::format("optimizer: a tensor at {} (gradient at {}, {} elements) is not placed "
                    "at multiples of {}",
                    slot.offset, slot.grad_offset, slot.count, kBlock));
  }
  const std::string& state = slot.embedding ? config.embedding_state : config.state;
  return {.begin = slot.offset,
          .end = slot.offset + (slot.count + kBlock - 1) / kBlock * kBlock,
          .grad_begin = slot.grad_offset,
          .grad_is_low = !slot.embedding && !slot.norm,
          .eight_bit =
              config.state == "8bit" && state == "8bit" && !slot.norm && slot.count >= config.min_8bit_size,
          .decay = slot.embedding ? config.decay_embedding : !slot.norm};
}

bool continues(const UpdateRange& a, const UpdateRange& b) {
  return b.begin == a.end && b.grad_begin == a.grad_begin + (a.end - a.begin) &&
         a.grad_is_low == b.grad_is_low && a.eight_bit == b.eight_bit && a.decay == b.decay;
}

}  // namespace

std::vector<UpdateRange> make_update_ranges(const std::vector<TensorSlot>& slots, const OptimConfig& config) {
  std::vector<UpdateRange> tensors;
  for (const TensorSlot& slot : slots) {
    if (slot.count != 0) tensors.push_back(rules_of(slot, config));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const UpdateRange& a, const UpdateRange& b) { return a.begin < b.begin; });
  std::vector<UpdateRange> ranges;
  for (const UpdateRange& tensor : tensors) {
    if (!ranges.empty() && tensor.begin < ranges.back().end) {
      throw std::invalid_argument(fmt::format("optimizer: two tensors overlap at element {}", tensor.begin));
    }
    if (!ranges.empty() && continues(ranges.back(), tensor)) {
      ranges.back().end = tensor.end;
    } else {
      ranges.push_back(tensor);
    }
  }
  return ranges;
}

}  // namespace narrowgauge::layout
