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
#include "cuda/launch_overlap.h"
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

// Must be the first statement of a kernel that launch_kernel launches: returns when the work before it on the
// stream is done and can be read.
__device__ __forceinline__ void wait_for_inputs() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

// True when wait_for_inputs does wait in this program's code for the current device. Throws CudaError.
bool kernels_wait();

// Launches a kernel that begins with wait_for_inputs(), so that where the device can, its blocks are set up
// while the last ones of the kernel before it finish ("programmatic dependent launch"); a captured graph
// keeps that. Throws CudaError with `name`.
template <class... Parameters, class... Arguments>
void launch_kernel(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                   size_t shared_bytes, Stream stream, const Arguments&... arguments) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = launch_overlap() && kernels_wait() ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, arguments...), name);
  launch_delay();
}

// Lets `kernel` use `bytes` of dynamic shared memory. Without it the kernel's static and dynamic shared
// memory may take 48 KB together; 16 KB are left to the static part. Throws CudaError when the card refuses.
template <class Kernel>
void allow_shared_memory(Kernel kernel, int bytes) {
  if (bytes > 32 * 1024) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "cudaFuncSetAttribute");
  }
}

inline bool aligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// For kernels launched by plan_flat: this thread's first item, and the distance to its next.
__device__ __forceinline__ int64_t flat_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int64_t flat_step() { return int64_t{gridDim.x} * blockDim.x; }

}  // namespace narrowgauge::cuda
