#pragma once
#include "lib/config/model_config.h"

namespace narrowgauge::bench {

// Bytes a token that norms, RoPE, SwiGLU and the embedding must at least move in one forward and one backward
// pass in bf16: a layer needs 32 H (two norms with their residual, both directions) + 8 (A + K) (RoPE) + 16 F
// (SwiGLU), the ends 28 H. H hidden, A and K widths of queries and keys, F feed-forward.
double least_traffic(const ModelConfig& model);

}  // namespace narrowgauge::bench
