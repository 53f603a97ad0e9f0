#pragma once
#include <cstdint>

#include "cuda/philox.h"

namespace narrowgauge::model {

// Uniform in (0, 1), never 0 or 1, from 32 random bits (cuda::philox).
inline double uniform(uint32_t bits) { return (static_cast<double>(bits) + 0.5) * 0x1p-32; }

}  // namespace narrowgauge::model
