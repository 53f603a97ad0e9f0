// FlashAttention-2 as LibTorch ships it; documents run through its variable-length form. Results are copied
// to where they belong: LibTorch exports neither a backward nor a variable-length forward into given tensors.
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>

#include <tuple>

#include "cuda/launch_delay.h"
#include "lib/ops/attention_kernels.h"

namespace narrowgauge::ops::detail {
namespace {

// (batch, context, heads, head_dim), or (tokens, heads, head_dim) when documents are masked.
Heads kernel_heads(const at::Tensor& packed, const AttentionShape& s, bool varlen) {
  Heads h = split_heads(packed, s);
  if (varlen) {
    for (at::Tensor* t : {&h.q, &h.k, &h.v}) *t = t->flatten(0, 1);
  }
  return h;
}

}  // namespace

void flash_cuda_forward(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& s,
                        const Documents& documents) {
  const at::Tensor& cu = documents.cu_seqlens;
  const auto cu_seqlens = cu.defined() ? std::optional(cu) : std::nullopt;
  const Heads h = kernel_heads(qkv, s, cu.defined());
  cuda::launch_delay();
  auto [out, lse, rng, unused, debug] = at::_flash_attention_forward(
      h.q, h.k, h.v, cu_seqlens, cu_seqlens, s.context, s.context, /*dropout_p=*/0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false);
  result.out.copy_(out.view(result.out.sizes()));
  result.lse.copy_(lse.view(-1));
}

void flash_cuda_backward(const Backward& a, const AttentionShape& s, const Documents& documents) {
  const at::Tensor& cu = documents.cu_seqlens;
  const Heads h = kernel_heads(a.qkv, s, cu.defined());
  // Dropout's random state, which nothing reads at a rate of zero.
  const at::Tensor unused = at::empty({2}, a.qkv.options().dtype(at::kUInt64));
  const at::Tensor lse = cu.defined() ? a.forward.lse.view({s.heads, s.batch * s.context})
                                      : a.forward.lse.view({s.batch, s.heads, s.context});
  cuda::launch_delay();
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      a.dout.view(h.q.sizes()), h.q, h.k, h.v, a.forward.out.view(h.q.sizes()), lse, cu, cu, s.context,
      s.context, /*dropout_p=*/0.0, /*is_causal=*/true, unused, unused);
  const Heads d = kernel_heads(a.dqkv, s, cu.defined());
  d.q.copy_(dq);
  d.k.copy_(dk);
  d.v.copy_(dv);
}

}  // namespace narrowgauge::ops::detail
