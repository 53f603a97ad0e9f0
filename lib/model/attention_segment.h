#pragma once
#include <ATen/core/Tensor.h>

#include "lib/model/recompute.h"
#include "lib/model/residual_norm.h"
#include "lib/ops/attention.h"
#include "lib/ops/rope.h"

namespace narrowgauge::model {

// norm -> QKV -> [QK-norm] -> RoPE -> attention -> output. Plain functions without autograd of their own.

// Weights, or the gradients that are accumulated for them.
struct AttentionWeights {
  at::Tensor norm;        // (H)
  at::Tensor qkv;         // (A + 2K, H)
  at::Tensor query_norm;  // (D); undefined: no QK-norm
  at::Tensor key_norm;    // (D)
  at::Tensor out;         // (H, A)
};

// What all layers share while one micro-batch passes through.
struct Pass {
  ops::Attention attention;
  ops::RopeTable rope;
  at::Tensor positions;  // (tokens) int32; undefined: 0 .. context - 1 in every sequence
  double eps;            // of the norms
};

// What forward leaves for backward; undefined: not kept.
struct AttentionKept {
  ResidualNorm entry;
  at::Tensor raw;         // QK-norm only: (tokens, A + 2K) or (tokens, A + K) before norm and RoPE
  at::Tensor query_rstd;  // QK-norm only: (tokens, heads), fp32
  at::Tensor key_rstd;    // QK-norm only: (tokens, kv_heads), fp32
  at::Tensor qkv;         // (tokens, A + 2K) after RoPE
  ops::AttentionResult attention;
};

// Computes entry.normed, raw, qkv where they are missing.
void attention_project(const AttentionWeights& weights, const Pass& pass, AttentionKept& kept);

// The segment's output (tokens, H), computing what is missing on the way; nothing is dropped.
at::Tensor attention_output(const AttentionWeights& weights, const Pass& pass, AttentionKept& kept);

// Drops what a level does not keep.
void attention_drop(const Pass& pass, Kept keep, AttentionKept& kept);

// Gradient of the segment's input stream, given the gradients of its two outputs: the stream itself
// (dresidual) and the output (dout). `kept` has at least entry.input and is used up.
at::Tensor attention_backward(const AttentionWeights& weights, const AttentionWeights& gradients,
                              const Pass& pass, AttentionKept& kept, const at::Tensor& dresidual,
                              const at::Tensor& dout);

}  // namespace narrowgauge::model
