#pragma once
// The kernels behind attention.h; used by attention.cpp, attention_choice.cpp and tests.
#include <string>

#include "lib/ops/attention.h"

namespace narrowgauge::ops::detail {

// Views of packed rows, (batch, context, heads or kv_heads, head_dim): last dimension contiguous, no copy.
struct Heads {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};
Heads split_heads(const at::Tensor& packed, const AttentionShape& shape);

// `documents.cu_seqlens` undefined: one per sequence. `dout`: contiguous (tokens, heads * head_dim).
struct Backward {
  const at::Tensor& dqkv;
  const at::Tensor& dout;
  const at::Tensor& qkv;
  const AttentionResult& forward;
};

void flash_cuda_forward(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& shape,
                        const Documents& documents);
void flash_cuda_backward(const Backward& args, const AttentionShape& shape, const Documents& documents);

void flash_cpu_forward(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& shape,
                       const Documents& documents);
void flash_cpu_backward(const Backward& args, const AttentionShape& shape, const Documents& documents);

// Bytes of a backward workspace that grouping keeps to: 128 MiB of scores (cuDNN's deterministic backward
// holds context^2 of them a head, in bf16) and room for the row sums beside them.
inline constexpr int64_t kCudnnWorkspaceLimit = int64_t{136} << 20;

// bf16 on CUDA. Plans are built at the first use of a shape, whichever function that is, and kept; building
// is not possible while a CUDA graph is captured, running is. `deterministic` concerns backward. `limit`: the
// largest group whose workspace fits is taken, the smallest one when none does.
// cudnn_refusal: why cuDNN cannot do this on the device; empty when it can. The others throw cudnn::Refusal.
std::string cudnn_refusal(const AttentionShape& shape, bool deterministic, at::Device device);
int64_t cudnn_scratch_bytes(const AttentionShape& shape, bool deterministic, at::Device device,
                            int64_t limit = kCudnnWorkspaceLimit);
// What one backward call of cuDNN covers.
AttentionShape cudnn_backward_group(const AttentionShape& shape, bool deterministic, at::Device device,
                                    int64_t limit = kCudnnWorkspaceLimit);
void cudnn_forward(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& shape,
                   bool deterministic, const at::Tensor& scratch);
void cudnn_backward(const Backward& args, const AttentionShape& shape, bool deterministic,
                    const at::Tensor& scratch, int64_t limit = kCudnnWorkspaceLimit);

void math_forward(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& shape,
                  const Documents& documents);
void math_backward(const Backward& args, const AttentionShape& shape, const Documents& documents);

}  // namespace narrowgauge::ops::detail
