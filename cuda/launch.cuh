#pragma once
// What every launcher needs: the check of CUDA calls and launches, and integer helpers.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "cuda/device_limits.h"
#include "cuda/error.h"
#include "cuda/flat_launch.h"
#include "cuda/launch_delay.h"
#include "cuda/stream.h"

namespace narrowgauge::cuda {

// Throws CudaError if `status` is a failure; clears the sticky error first.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw CudaError(std::string(what) + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}

// Call right after <<<>>>.
inline void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
  launch_delay();
}

// Lets `kernel` use `bytes` of dynamic shared memory. Throws CudaError when the card refuses.
template <class Kernel>
void allow_shared_memory(Kernel kernel, int bytes) {
  if (bytes > 48 * 1024) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "cudaFuncSetAttribute");
  }
}

inline bool aligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// For kernels launched by plan_flat: this thread's first item, and the distance to its next.
__device__ __forceinline__ int64_t flat_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int64_t flat_step() { return int64_t{gridDim.x} * blockDim.x; }

}  // namespace narrowgauge::cuda
