#pragma once
#include <cstdint>
#include <vector>

#include "lib/config/optim_config.h"

namespace narrowgauge::layout {

// One run of elements of the flat weight buffer that is updated alike. All numbers count elements; begin and
// end are multiples of 256.
struct UpdateRange {
  int64_t begin;
  int64_t end;
  int64_t grad_begin;  // where the range starts in the gradient buffer of its dtype
  bool grad_is_low;    // true: `grad`; false: `grad32`
  bool eight_bit;      // states as 8-bit codes, else fp32
  bool decay;          // weight decay applies

  bool operator==(const UpdateRange&) const = default;
};

// One tensor of the arena. Offsets count elements and are multiples of 256; what lies between a tensor's end
// and the next multiple of 256 is zero padding.
struct TensorSlot {
  int64_t offset;       // in the weights
  int64_t grad_offset;  // in `grad` (matrices) or `grad32` (embedding, head and norms)
  int64_t count;
  bool embedding;  // also an untied head
  bool norm;
};

// The rules of every tensor, in the order of their offsets, with neighbours that are updated alike joined:
// 8-bit states unless the tensor is a norm, has fewer than min_8bit_size elements, optim.state is fp32, or it
// is an embedding and embedding_state is fp32; decay never on norms, on embeddings by decay_embedding. Throws
// std::invalid_argument when offsets are no multiples of 256 or tensors overlap.
std::vector<UpdateRange> make_update_ranges(const std::vector<TensorSlot>& slots, const OptimConfig& config);

}  // namespace narrowgauge::layout
