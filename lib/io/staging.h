#pragma once
#include <cstdint>

namespace narrowgauge::io {

// The most bytes of a tensor that are in flight between a file and a device, or are read or written at once.
inline constexpr int64_t kStagingBytes = int64_t{64} << 20;

}  // namespace narrowgauge::io
