#pragma once
#include "lib/bench/machine.h"
#include "lib/config/config.h"

namespace narrowgauge::bench {

// Forward and backward of every kernel of lib/ops/attention.h that takes the model's shape, `batch` sequences
// at once, with and without determinism: {"batch", "context", "kernels": [...]}. Causal FLOPs are counted
// once: 2 x heads x context^2 x head_dim a sequence forward, 2.5 times that backward.
Json measure_attention(const Machine& machine, const Config& config, int64_t batch);

// Microseconds a token over all layers of the fastest kernel measured, among the deterministic ones or all.
double fastest_attention(const Json& measured, bool deterministic);

// The same for every batch; a row of cudnn also says under "cudnn" which group and plans
// (lib/ops/attention_cudnn.h) are in force within memory.attention_workspace, and how long all that cuDNN has
// take without that limit.
Json bench_attention(Machine& machine, const Config& config, const std::vector<int64_t>& batches);

}  // namespace narrowgauge::bench
