#pragma once
#include "lib/bench/machine.h"
#include "lib/config/config.h"

namespace narrowgauge::bench {

// Bytes a token that norms, RoPE, SwiGLU and the embedding must at least move in one forward and one backward
// pass in bf16: a layer needs 32 H (two norms with their residual, both directions) + 8 (A + K) (RoPE) + 16 F
// (SwiGLU), the ends 28 H. H hidden, A and K widths of queries and keys, F feed-forward.
double least_traffic(const ModelConfig& model);

// What a token would cost if every kernel ran alone and nothing lay between them, measured now: matrix
// products, the fastest attention, least traffic at the rate of a copy, cross-entropy, the optimizer's share.
// Microseconds a token by part, their sum and the tokens a second.
Json measure_wall(const Machine& machine, const Config& config);

}  // namespace narrowgauge::bench
