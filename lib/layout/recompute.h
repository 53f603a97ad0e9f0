#pragma once
#include "lib/config/memory_config.h"

namespace narrowgauge::layout {

// What a layer keeps from forward for backward at a recompute level. Bytes per token in bf16
// (H hidden, F feed-forward, A = heads D, K = kv_heads D):
//   none         8H + 4A + 4K + 6F   everything
//   elementwise  4H + 4A + 4K + 4F   norms and the SwiGLU product are recomputed
//   ffn          4H + 4A + 4K        + the gate-up product
//   ffn_qkv      4H + 2A             + the QKV product and RoPE
//   block        2H                  + attention forward: only the layer's input is kept
// All but block also keep fp32 log-sum-exps (4 per head) and two rstd (8). With QK-norm, none also keeps
// queries and keys before their norm (2A + 2K) and their rstd (4 per head and key head); elementwise and ffn
// keep QKV before norm and RoPE instead of after.
struct Kept {
  bool norms;
  bool product;
  bool gate_up;
  bool qkv;
  bool attention;  // attention output, mid residual, log-sum-exp, rstd
};

constexpr Kept kept(RecomputeLevel level) {
  return {.norms = level == RecomputeLevel::none,
          .product = level == RecomputeLevel::none,
          .gate_up = level <= RecomputeLevel::elementwise,
          .qkv = level <= RecomputeLevel::ffn,
          .attention = level <= RecomputeLevel::ffn_qkv};
}

}  // namespace narrowgauge::layout
