#pragma once
#include <functional>
#include <vector>

#include "lib/ops/attention_choice.h"

namespace narrowgauge::ops {

// Random inputs of one micro-batch in bf16, and room for what the passes write.
struct AttentionData {
  AttentionData(const AttentionShape& shape, at::Device device);
  at::Tensor qkv;
  at::Tensor dout;
  at::Tensor dqkv;
  AttentionResult forward;
};

// Milliseconds of what `launch` puts on the current stream of a CUDA device; waits for it.
double milliseconds_of(at::Device device, const std::function<void()>& launch);

// Times `kernels` on a CUDA device in bf16, one document a sequence (behind the job's document mask), with
// random data and its own buffers, which are returned to the device. The fastest first.
std::vector<AttentionTime> time_attention(const std::vector<AttentionKernel>& kernels,
                                          const AttentionJob& job);

}  // namespace narrowgauge::ops
