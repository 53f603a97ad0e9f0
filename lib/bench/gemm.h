#pragma once
#include "lib/bench/machine.h"
#include "lib/config/config.h"

namespace narrowgauge::bench {

// The three products of every linear layer of the model through lib/ops/linear.h, `rows` tokens at once (the
// output projection: at most memory.loss_chunk), with the algorithms that training would choose: {"rows",
// "algorithms", "products": [...], "us_per_token"}, the last over all layers, forward and backward, nothing
// recomputed. Leaves no other choices in force.
Json measure_gemm(const Machine& machine, const Config& config, int64_t rows);

// The same for each count of rows, and "loss" (lib/bench/chunked_loss.h) with the algorithms of that run.
Json bench_gemm(Machine& machine, const Config& config, const std::vector<int64_t>& rows);

}  // namespace narrowgauge::bench
