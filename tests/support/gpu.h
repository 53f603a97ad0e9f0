#pragma once

namespace narrowgauge::test {

// True when this build has CUDA and a device answers.
bool cuda_available();

}  // namespace narrowgauge::test
