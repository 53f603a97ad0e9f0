#include "tests/support/gpu.h"

#if NARROWGAUGE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace narrowgauge::test {

bool cuda_available() {
#if NARROWGAUGE_CUDA
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
#else
  return false;
#endif
}

}  // namespace narrowgauge::test
