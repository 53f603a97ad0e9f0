// Attention as matrix products and a softmax in fp32, a block of query rows of one sequence at a time, so
// that the scores that exist at once are bounded. Blocks run in a fixed order: two runs give the same bits.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/ops/attention_kernels.h"

namespace narrowgauge::ops::detail {
namespace {

constexpr int64_t kScoresAtOnce = int64_t{8} << 20;  // fp32 elements: 32 MiB

struct Problem {
  AttentionShape shape;
  int64_t group;  // query heads per key head
  int64_t rows;   // query rows of a block
  double scale;
  at::Tensor document_of;  // (tokens) index of the token's document; undefined without documents

  Problem(const AttentionShape& s, const at::Tensor& like, const Documents& documents)
      : shape(s),
        group(s.heads / s.kv_heads),
        rows(std::clamp<int64_t>(kScoresAtOnce / (s.heads * s.context), 1, s.context)),
        scale(1.0 / std::sqrt(static_cast<double>(s.head_dim))) {
    if (!documents.cu_seqlens.defined()) return;
    const auto tokens = at::arange(s.batch * s.context, like.options().dtype(at::kInt));
    document_of = at::searchsorted(documents.cu_seqlens, tokens, /*out_int32=*/true, /*right=*/true);
  }

  // Of (context, kv_heads, head_dim): fp32 (kv_heads, context, head_dim).
  at::Tensor keys(const at::Tensor& x) const { return x.transpose(0, 1).to(at::kFloat).contiguous(); }

  // Rows [begin, begin + n) of (context, heads, head_dim): fp32 (kv_heads, group * n, head_dim).
  at::Tensor queries(const at::Tensor& x, int64_t begin, int64_t n) const {
    return x.narrow(0, begin, n)
        .transpose(0, 1)
        .to(at::kFloat)
        .reshape({shape.kv_heads, group * n, shape.head_dim});
  }
  // The way back, rounded to the dtype of `to`.
  void put_queries(const at::Tensor& to, const at::Tensor& x, int64_t begin, int64_t n) const {
    to.narrow(0, begin, n).copy_(x.view({shape.heads, n, shape.head_dim}).transpose(0, 1));
  }

  // Scaled scores of a block against keys [0, begin + n), -Inf where masked: (kv_heads, group * n, begin +
  // n).
  at::Tensor scores(const at::Tensor& q, const at::Tensor& k, int64_t sequence, int64_t begin,
                    int64_t n) const {
    const int64_t seen = begin + n;
    at::Tensor s = at::bmm(q, k.narrow(1, 0, seen).transpose(1, 2)).mul_(scale);
    const auto position = at::arange(seen, q.options().dtype(at::kInt));
    at::Tensor masked = position.unsqueeze(0) > position.narrow(0, begin, n).unsqueeze(1);
    if (document_of.defined()) {
      const at::Tensor document = document_of.narrow(0, sequence * shape.context, seen);
      masked = masked.logical_or_(document.unsqueeze(0) != document.narrow(0, begin, n).unsqueeze(1));
    }
    s.view({shape.heads, n, seen}).masked_fill_(masked, -std::numeric_limits<float>::infinity());
    return s;
  }

  template <class Run>
  void for_each_block(Run&& run) const {
    for (int64_t begin = 0; begin < shape.context; begin += rows)
      run(begin, std::min(rows, shape.context - begin));
  }
};

}  // namespace

void math_forward(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& s,
                  const Documents& documents) {
  const Problem p(s, qkv, documents);
  const Heads h = split_heads(qkv, s);
  const at::Tensor out = result.out.view(h.q.sizes());
  const at::Tensor all_lse = result.lse.view({s.batch, s.heads, s.context});
  for (int64_t b = 0; b < s.batch; ++b) {
    const at::Tensor k = p.keys(h.k[b]);
    const at::Tensor v = p.keys(h.v[b]);
    p.for_each_block([&](int64_t begin, int64_t n) {
      at::Tensor score = p.scores(p.queries(h.q[b], begin, n), k, b, begin, n);
      const at::Tensor lse = at::logsumexp(score, -1, /*keepdim=*/true);
      score.sub_(lse).exp_();
      p.put_queries(out[b], at::bmm(score, v.narrow(1, 0, begin + n)), begin, n);
      all_lse[b].narrow(1, begin, n).copy_(lse.view({s.heads, n}));
    });
  }
}

// With P the probabilities and D = rowsum(dout * out): dV = P^T dout, dS = P * (dout V^T - D), dQ = scale dS
// K, dK = scale dS^T Q.
void math_backward(const Backward& a, const AttentionShape& s, const Documents& documents) {
  const Problem p(s, a.qkv, documents);
  const Heads h = split_heads(a.qkv, s);
  const Heads d = split_heads(a.dqkv, s);
  const at::Tensor out = a.forward.out.view(h.q.sizes());
  const at::Tensor dout = a.dout.view(h.q.sizes());
  const at::Tensor all_lse = a.forward.lse.view({s.batch, s.heads, s.context});
  for (int64_t b = 0; b < s.batch; ++b) {
    const at::Tensor k = p.keys(h.k[b]);
    const at::Tensor v = p.keys(h.v[b]);
    const at::Tensor dk = at::zeros(k.sizes(), k.options());
    const at::Tensor dv = at::zeros(v.sizes(), v.options());
    p.for_each_block([&](int64_t begin, int64_t n) {
      const int64_t seen = begin + n;
      const at::Tensor q = p.queries(h.q[b], begin, n);
      const at::Tensor g = p.queries(dout[b], begin, n);
      const at::Tensor delta = (g * p.queries(out[b], begin, n)).sum(-1, /*keepdim=*/true);
      const at::Tensor lse = all_lse[b].narrow(1, begin, n).reshape({s.kv_heads, p.group * n, 1});
      at::Tensor probability = p.scores(q, k, b, begin, n).sub_(lse).exp_();
      dv.narrow(1, 0, seen).baddbmm_(probability.transpose(1, 2), g);
      at::Tensor dscore = at::bmm(g, v.narrow(1, 0, seen).transpose(1, 2)).sub_(delta);
      dscore.mul_(probability).mul_(p.scale);
      p.put_queries(d.q[b], at::bmm(dscore, k.narrow(1, 0, seen)), begin, n);
      dk.narrow(1, 0, seen).baddbmm_(dscore.transpose(1, 2), q);
    });
    d.k[b].copy_(dk.transpose(0, 1));
    d.v[b].copy_(dv.transpose(0, 1));
  }
}

}  // namespace narrowgauge::ops::detail
