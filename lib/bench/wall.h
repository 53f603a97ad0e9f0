#pragma once
#include "lib/bench/machine.h"
#include "lib/config/config.h"

namespace narrowgauge::bench {

// What a token would cost if every kernel ran alone and nothing lay between them, measured now: matrix
// products, the fastest attention, least traffic at the rate of a copy, cross-entropy, the optimizer's share.
// Microseconds a token by part, their sum and the tokens a second.
Json measure_wall(const Machine& machine, const Config& config);

}  // namespace narrowgauge::bench
