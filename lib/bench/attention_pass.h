#pragma once
#include "lib/bench/timer.h"
#include "lib/ops/attention.h"

namespace narrowgauge::bench {

// Forward or backward of one layer's attention on random data, with everything that it reads and writes as
// one buffer set. Throws as ops::attention_forward.
Prepared prepare_attention(at::Device device, const ops::Attention& attention, at::ScalarType dtype,
                           bool forward);

}  // namespace narrowgauge::bench
