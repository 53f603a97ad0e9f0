#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

struct AttentionShape {
  int64_t batch;
  int64_t context;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

// flash: LibTorch's FlashAttention-2 (CUDA) or its tiled CPU kernel. cudnn: cuDNN's graph API on LibTorch's
// copy of cuDNN, bf16, without document mask. math: matrix products and a softmax in fp32, with bounded
// temporaries, on any device. Which of them can do a job and is the fastest: attention_choice.h.
enum class AttentionKernel { flash, cudnn, math };
const char* attention_kernel_name(AttentionKernel kernel);

// Document boundaries of one micro-batch. cu_seqlens: int32, on the tensors' device, fixed length (padded
// at the end with batch * context), cu_seqlens[0] = 0, strictly increasing up to the padding; the start of
// every sequence is a boundary. Undefined: one document per sequence. Flash's backward on CUDA needs fp32
// scratch for (tokens + 128 * entries) rows of heads * head_dim, so do not pad lavishly.
struct Documents {
  at::Tensor cu_seqlens;
};

// Entries of cu_seqlens that have room for documents of 512 tokens in the mean: what batches of longer ones
// are padded to.
int64_t usual_boundaries(int64_t batch, int64_t context);

// Room for the scores of 16 heads of 4096 tokens, which cuDNN's deterministic backward holds in bf16.
inline constexpr int64_t kAttentionWorkspace = int64_t{544} << 20;

// What one call computes.
struct Attention {
  AttentionShape shape;
  AttentionKernel kernel;
  bool deterministic = false;  // backward gives the same bits twice
  Documents documents{};
  // Bytes of scratch that a deterministic cudnn backward may take: it covers fewer heads at a time with less,
  // in the end those of one key head, whatever they take.
  int64_t workspace_limit = kAttentionWorkspace;
};

// What forward leaves for backward besides qkv, in the caller's memory, contiguous.
struct AttentionResult {
  at::Tensor out;  // (tokens, heads * head_dim) of qkv's dtype
  at::Tensor lse;  // (tokens * heads) fp32, laid out as the kernel likes it
};

// Size of the scratch tensor (uint8, on the device, 256-byte aligned) that forward and backward share; 0 for
// kernels that allocate for themselves. Its content does not outlive a call. The first call for a shape plans
// the cudnn kernel (seconds of host time), which cannot be done while a CUDA graph is captured; a
// std::runtime_error says why cuDNN refuses a shape. Its size changes with choices() (attention_cudnn.h).
int64_t attention_scratch_bytes(const Attention& attention, at::Device device);

// What each pass needs of it: a deterministic backward much more than forward.
struct AttentionScratch {
  int64_t forward = 0;
  int64_t backward = 0;
};
AttentionScratch attention_scratch(const Attention& attention, at::Device device);

// Causal scaled dot-product attention over the packed rows of qkv (batch * context, (Hq + 2 Hk) D),
// contiguous, bf16 or fp32: all query heads, then keys, then values; scale 1 / sqrt(D); grouped-query when
// kv_heads < heads (query head h reads key head h / (heads / kv_heads)). CUDA is asynchronous on the current
// stream. Wrong shapes throw c10::Error, documents with the cudnn kernel std::invalid_argument.
void attention_forward(const AttentionResult& result, const at::Tensor& qkv, const Attention& attention,
                       const at::Tensor& scratch);

// dqkv has qkv's shape; every element is written. dout (tokens, heads * head_dim), any strides.
void attention_backward(const at::Tensor& dqkv, const at::Tensor& dout, const at::Tensor& qkv,
                        const AttentionResult& forward, const Attention& attention,
                        const at::Tensor& scratch);

}  // namespace narrowgauge::ops
