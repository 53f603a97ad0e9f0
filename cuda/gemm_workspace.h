#pragma once
#include <cstdint>

namespace narrowgauge::cuda {

// Scratch of matrix products, one for each process and device: what cuBLASLt's algorithms may use at most.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{64} << 20;

}  // namespace narrowgauge::cuda
