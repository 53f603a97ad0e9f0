#pragma once
#include <cstdint>
#include <span>

#include "lib/model/generate.h"

namespace narrowgauge::model {

// Draws a token from `logits`: scaled by 1 / temperature, cut to the top_k largest, then to the smallest set
// whose probability reaches top_p. Ties go to the lower id. The random number is a function of (options.seed,
// step).
int32_t draw_token(std::span<const float> logits, const SampleOptions& options, uint64_t step);

}  // namespace narrowgauge::model
