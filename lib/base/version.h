#pragma once

namespace narrowgauge {

// The version of CMakeLists.txt (a test compares them). Written into checkpoints and exports.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace narrowgauge
