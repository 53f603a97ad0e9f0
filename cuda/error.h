#pragma once
#include <source_location>
#include <stdexcept>
#include <string>

namespace narrowgauge::cuda {

// A failed CUDA call or launch. Not the user's fault: the program ends with exit code 70.
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A launcher was called with arguments that break its contract (shape, alignment, range).
class LaunchError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Throws LaunchError with `message` unless `ok`.
void require(bool ok, const char* message);

}  // namespace narrowgauge::cuda
