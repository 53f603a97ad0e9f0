#pragma once
#include "lib/bench/machine.h"
#include "lib/bench/table.h"
#include "lib/config/config.h"

namespace narrowgauge::bench {

// The loss of `rows` tokens with its gradients (lib/ops/linear_cross_entropy.h), memory.loss_chunk tokens at
// once, beside its bare products: the output projection, the gradient of its input and that of its weight,
// chunk by chunk on the same buffers with the same algorithms, those in force in ops::choices(). {"rows",
// "chunk", "loss": microseconds, "products": microseconds, "ratio", "target", "verdict"}, microseconds as
// median_us, p20_us and p80_us.
Json measure_chunked_loss(const Machine& machine, const Config& config, int64_t rows);

// One such result. Needs no GPU.
Table chunked_loss_table(const Json& measured);

}  // namespace narrowgauge::bench
