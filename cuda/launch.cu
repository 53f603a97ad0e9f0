#include "cuda/launch.cuh"

#include <array>
#include <atomic>

namespace narrowgauge::cuda {
namespace {

__global__ void probe_kernel() { wait_for_inputs(); }

// The code that the device runs, not the device, decides: older code on a newer device does not wait.
bool code_waits() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, probe_kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion >= 90;
}

}  // namespace

bool kernels_wait() {
  enum : int { kUnknown, kNo, kYes };
  static std::array<std::atomic<int>, 64> known{};
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  if (static_cast<size_t>(device) >= known.size()) return false;
  std::atomic<int>& answer = known[static_cast<size_t>(device)];
  if (answer == kUnknown) answer = code_waits() ? kYes : kNo;
  return answer == kYes;
}

}  // namespace narrowgauge::cuda
