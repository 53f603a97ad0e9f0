// LibTorch's cuDNN attention, (batch, heads, context, head_dim) views of the packed rows.
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/empty.h>

#include <optional>
#include <tuple>

#include "lib/ops/attention_kernels.h"

namespace narrowgauge::ops::detail {

void cudnn_forward(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& s) {
  const Heads h = split_heads(qkv, s);
  const auto computed = at::_scaled_dot_product_cudnn_attention(
      h.q.transpose(1, 2), h.k.transpose(1, 2), h.v.transpose(1, 2), /*attn_bias=*/std::nullopt,
      /*compute_log_sumexp=*/true, /*dropout_p=*/0.0, /*is_causal=*/true);
  result.out.view(h.q.sizes()).copy_(std::get<0>(computed).transpose(1, 2));
  result.lse.copy_(std::get<1>(computed).reshape(-1));
}

void cudnn_backward(const Backward& a, const AttentionShape& s) {
  const Heads h = split_heads(a.qkv, s);
  const at::Tensor none;
  // Dropout's random state, which nothing reads at a rate of zero.
  const at::Tensor unused = at::empty({}, a.qkv.options().dtype(at::kLong));
  const auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
      a.dout.view(h.q.sizes()).transpose(1, 2), h.q.transpose(1, 2), h.k.transpose(1, 2), h.v.transpose(1, 2),
      a.forward.out.view(h.q.sizes()).transpose(1, 2), a.forward.lse.view({s.batch, s.heads, s.context, 1}),
      unused, unused,
      /*attn_bias=*/none, /*cum_seq_q=*/none, /*cum_seq_k=*/none, s.context, s.context, /*dropout_p=*/0.0,
      /*is_causal=*/true);
  const Heads d = split_heads(a.dqkv, s);
  d.q.copy_(dq.transpose(1, 2));
  d.k.copy_(dk.transpose(1, 2));
  d.v.copy_(dv.transpose(1, 2));
}

}  // namespace narrowgauge::ops::detail
