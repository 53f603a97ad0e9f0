#pragma once
#include <functional>
#include <vector>

#include "lib/bench/breakdown.h"

namespace narrowgauge::bench {

// Everything that the device does for `body`, by LibTorch's profiler (Kineto over CUPTI). `body` must wait
// for the device before it returns. Recording slows the host: launches come later than without.
std::vector<KernelEvent> record_kernels(const std::function<void()>& body);

}  // namespace narrowgauge::bench
