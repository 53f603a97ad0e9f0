#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace narrowgauge::ops {

struct AttentionShape {
  int64_t batch;
  int64_t context;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
};

enum class AttentionKernel { flash, cudnn, math };
const char* attention_kernel_name(AttentionKernel kernel);

// The kernel for `request` ("auto", "flash", "cudnn", "math") on this device. auto: on CUDA with bf16,
// cuDNN where it is the faster one and determinism and document masks are not asked for, else flash;
// fp32 on CUDA: math; CPU: flash (LibTorch's CPU kernel) . A request that cannot be met throws
// std::invalid_argument that says why (the caller turns it into a UserError).
AttentionKernel choose_attention(const std::string& request, at::Device device, at::ScalarType dtype,
                                 const AttentionShape& shape, bool deterministic, bool document_mask);

// Document boundaries of one micro-batch. cu_seqlens: int32, on the tensors' device, fixed length (padded
// at the end with batch * context), cu_seqlens[0] = 0, strictly increasing up to the padding. Undefined:
// one document per sequence.
struct Documents {
  at::Tensor cu_seqlens;
};

// What forward leaves for backward besides qkv. out (tokens, heads * head_dim); lse fp32.
struct AttentionForward {
  at::Tensor out;
  at::Tensor lse;
  at::Tensor rng_seed;    // kernel-private, small
  at::Tensor rng_offset;  // kernel-private, small
};

// Causal scaled dot-product attention over the packed rows of qkv (batch * context, (Hq + 2 Hk) D): all
// query heads, then keys, then values; scale 1 / sqrt(D); grouped-query when kv_heads < heads.
AttentionForward attention_forward(const at::Tensor& qkv, const AttentionShape& shape,
                                   AttentionKernel kernel, const Documents& documents);

// dqkv has qkv's shape; every element is written. dout (tokens, heads * head_dim).
void attention_backward(const at::Tensor& dqkv, const at::Tensor& dout, const at::Tensor& qkv,
                        const AttentionForward& forward, const AttentionShape& shape,
                        AttentionKernel kernel, const Documents& documents);

}  // namespace narrowgauge::ops
