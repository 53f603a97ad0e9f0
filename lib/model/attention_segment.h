#pragma once
#include <ATen/core/Tensor.h>

#include "lib/layout/recompute.h"
#include "lib/model/pass.h"
#include "lib/model/residual_norm.h"

namespace narrowgauge::model {

// norm -> QKV -> [QK-norm] -> RoPE -> attention -> output. Plain functions without autograd of their own. All
// tensors come from the slab; lib/layout/step.cpp goes the same way on paper.

// Weights, or the gradients that are accumulated for them.
struct AttentionWeights {
  at::Tensor norm;        // (H)
  at::Tensor qkv;         // (A + 2K, H)
  at::Tensor query_norm;  // (D); undefined: no QK-norm
  at::Tensor key_norm;    // (D)
  at::Tensor out;         // (H, A)
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
void attention_project(const AttentionWeights& weights, const Place& place, AttentionKept& kept);

// The segment's output (tokens, H), computing what is missing on the way; nothing is dropped.
at::Tensor attention_output(const AttentionWeights& weights, const Place& place, AttentionKept& kept);

// Drops what a level does not keep.
void attention_drop(const Place& place, layout::Kept keep, AttentionKept& kept);

// Gradient of the segment's input stream, given the gradients of its two outputs: the stream itself
// (dresidual) and the output (dout). `kept` has at least entry.input and is used up.
at::Tensor attention_backward(const AttentionWeights& weights, const AttentionWeights& gradients,
                              const Place& place, AttentionKept& kept, const at::Tensor& dresidual,
                              const at::Tensor& dout);

}  // namespace narrowgauge::model
