#pragma once
// Estimates of the memory that attention works in on a GPU, for who cannot ask ops::attention_scratch_bytes.
#include <cstdint>

#include "lib/config/config.h"

namespace narrowgauge::plan {

// Bytes in the slab that the passes of one layer work in.
struct AttentionScratch {
  int64_t forward = 0;
  int64_t backward = 0;
};

// Of cuDNN, whose forward needs next to nothing. Backward: sums of dQ in fp32 and, where the result is
// deterministic, a half-precision score of every pair of tokens, both for the largest part of the sequences
// or key heads that keeps to memory.attention_workspace. 0 where cuDNN cannot be taken.
AttentionScratch slab_scratch(const Config& config, int64_t sequences);

// From the allocator, by LibTorch's flash kernels where a document mask, head_dim or train.attention asks for
// them: gradients of queries, keys and values and the fp32 sums of dQ; by the math kernel its blocks of
// scores. 0 elsewhere.
int64_t allocated_scratch(const Config& config, int64_t sequences, int sm_count);

}  // namespace narrowgauge::plan
