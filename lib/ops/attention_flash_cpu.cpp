// LibTorch's tiled CPU kernel; it has no document mask, so every document is a call of its own.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <functional>
#include <tuple>

#include "lib/ops/attention_kernels.h"

namespace narrowgauge::ops::detail {
namespace {

// The part [begin, end) of every sequence in (batch, context, heads, head_dim), as (batch, heads, length,
// head_dim).
at::Tensor part(const at::Tensor& heads, int64_t first_sequence, int64_t sequences, int64_t begin,
                int64_t length) {
  return heads.narrow(0, first_sequence, sequences).narrow(1, begin, length).transpose(1, 2);
}

// Calls run(first sequence, sequences, begin within the sequence, length): once for all sequences without
// documents, else once a document.
void for_each_document(const AttentionShape& s, const Documents& documents,
                       const std::function<void(int64_t, int64_t, int64_t, int64_t)>& run) {
  if (!documents.cu_seqlens.defined()) return run(0, s.batch, 0, s.context);
  const int32_t* cu = documents.cu_seqlens.const_data_ptr<int32_t>();
  for (int64_t i = 0; i + 1 < documents.cu_seqlens.size(0); ++i) {
    const int64_t length = cu[i + 1] - cu[i];
    if (length == 0) continue;  // padding
    TORCH_CHECK(cu[i] / s.context == (cu[i + 1] - 1) / s.context,
                "attention: a document crosses two sequences");
    run(cu[i] / s.context, 1, cu[i] % s.context, length);
  }
}

}  // namespace

void flash_cpu_forward(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& s,
                       const Documents& documents) {
  const Heads h = split_heads(qkv, s);
  const at::Tensor out = result.out.view({s.batch, s.context, s.heads, s.head_dim});
  const at::Tensor all_lse = result.lse.view({s.batch, s.context, s.heads});
  for_each_document(s, documents, [&](int64_t sequence, int64_t count, int64_t begin, int64_t length) {
    const auto of = [&](const at::Tensor& t) { return part(t, sequence, count, begin, length); };
    const auto [o, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        of(h.q), of(h.k), of(h.v), /*dropout_p=*/0.0, /*is_causal=*/true);
    of(out).copy_(o);
    of(all_lse).copy_(lse);
  });
}

void flash_cpu_backward(const Backward& a, const AttentionShape& s, const Documents& documents) {
  const Heads h = split_heads(a.qkv, s);
  const Heads d = split_heads(a.dqkv, s);
  const at::Tensor out = a.forward.out.view({s.batch, s.context, s.heads, s.head_dim});
  const at::Tensor dout = a.dout.view(out.sizes());
  const at::Tensor all_lse = a.forward.lse.view({s.batch, s.context, s.heads});
  for_each_document(s, documents, [&](int64_t sequence, int64_t count, int64_t begin, int64_t length) {
    const auto of = [&](const at::Tensor& t) { return part(t, sequence, count, begin, length); };
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        of(dout), of(h.q), of(h.k), of(h.v), of(out), of(all_lse), /*dropout_p=*/0.0,
        /*is_causal=*/true);
    of(d.q).copy_(dq);
    of(d.k).copy_(dk);
    of(d.v).copy_(dv);
  });
}

}  // namespace narrowgauge::ops::detail
