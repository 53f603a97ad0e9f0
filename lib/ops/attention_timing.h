#pragma once
#include <vector>

#include "lib/ops/attention_choice.h"

namespace narrowgauge::ops {

// Times `kernels` on a CUDA device in bf16, one sequence of tokens a document, with random data and its own
// buffers, which are returned to the device. The fastest first.
std::vector<AttentionTime> time_attention(const std::vector<AttentionKernel>& kernels,
                                          const AttentionShape& shape, bool deterministic, at::Device device);

}  // namespace narrowgauge::ops
