#pragma once
#include <c10/core/Device.h>

#include <string>

namespace narrowgauge::test {

// One good step, one with an infinite weight, one good step again: the middle one updates nothing and counts
// as skipped.
void check_bad_gradient(c10::Device device, const std::string& dtype, bool cuda_graphs = false);

}  // namespace narrowgauge::test
