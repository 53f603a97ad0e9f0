#pragma once
#include <cstdint>

#include "lib/model/parameters.h"

namespace narrowgauge::model {

// Fills the weights by config.init, drawing on the CPU from (seed, tensor name), so that the values do not
// depend on device, dtype or order: "normal": N(0, init_std) everywhere, norms 1; "scaled": residual
// projections have init_std / sqrt(2 * layers) instead (Radford et al. 2019).
void initialise(ParameterArena& arena, const ModelConfig& config, uint64_t seed);

}  // namespace narrowgauge::model
