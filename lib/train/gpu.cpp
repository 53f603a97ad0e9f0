#include "lib/train/gpu.h"

#if NARROWGAUGE_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include "lib/base/version.h"
#include "lib/ops/choice_file.h"
#endif

namespace narrowgauge::train {

#if NARROWGAUGE_CUDA
std::optional<GpuFacts> find_gpu() {
  if (c10::cuda::device_count() == 0) return std::nullopt;
  const at::Device device(at::kCUDA, 0);
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
  const ops::ChoicePlace place = ops::choice_place(device);
  return GpuFacts{.name = properties.name,
                  .total_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                  .key = {.uuid = place.uuid, .driver = place.driver, .version = kVersion}};
}
#else
std::optional<GpuFacts> find_gpu() { return std::nullopt; }
#endif

}  // namespace narrowgauge::train
