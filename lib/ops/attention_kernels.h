#pragma once
// The kernels behind attention.h; used by attention*.cpp and tests.
#include "lib/ops/attention.h"

namespace narrowgauge::ops {
struct CudnnSetup;  // lib/ops/attention_cudnn.h
}

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

// bf16 on CUDA; the scratch tensor has setup.scratch_bytes() at least.
void cudnn_forward(const CudnnSetup& setup, const AttentionResult& result, const at::Tensor& qkv,
                   const AttentionShape& shape, const at::Tensor& scratch);
void cudnn_backward(const CudnnSetup& setup, const Backward& args, const AttentionShape& shape,
                    const at::Tensor& scratch);

void math_forward(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& shape,
                  const Documents& documents);
void math_backward(const Backward& args, const AttentionShape& shape, const Documents& documents);

}  // namespace narrowgauge::ops::detail
