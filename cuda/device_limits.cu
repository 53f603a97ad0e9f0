// Reads a card's limits once and keeps them.
#include <array>
#include <mutex>

#include "cuda/device_limits.h"
#include "cuda/launch.cuh"

namespace narrowgauge::cuda {

DeviceLimits device_limits(int device) {
  constexpr int kMaxDevices = 64;
  static std::array<DeviceLimits, kMaxDevices> cache;
  static std::mutex mutex;
  require(device >= 0 && device < kMaxDevices, "device_limits: device index out of range");
  const std::lock_guard lock(mutex);
  DeviceLimits& limits = cache[static_cast<size_t>(device)];
  if (limits.sm_count == 0) {
    const auto read = [device](cudaDeviceAttr attribute) {
      int value = 0;
      check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
      return value;
    };
    limits = {.sm_count = read(cudaDevAttrMultiProcessorCount),
              .shared_bytes_per_block = read(cudaDevAttrMaxSharedMemoryPerBlockOptin),
              .max_threads_per_sm = read(cudaDevAttrMaxThreadsPerMultiProcessor),
              .compute_major = read(cudaDevAttrComputeCapabilityMajor),
              .compute_minor = read(cudaDevAttrComputeCapabilityMinor)};
  }
  return limits;
}

}  // namespace narrowgauge::cuda
