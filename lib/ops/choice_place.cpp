#include <stdexcept>

#include "lib/ops/choice_file.h"

#if NARROWGAUGE_CUDA
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "lib/ops/cublaslt.h"
#endif

namespace narrowgauge::ops {

#if NARROWGAUGE_CUDA
ChoicePlace choice_place(at::Device device) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.index()));
  int driver = 0;
  C10_CUDA_CHECK(cudaDriverGetVersion(&driver));
  std::string uuid;
  for (const char byte : properties.uuid.bytes)
    uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return {.gpu = properties.name,
          .uuid = uuid,
          .capability = fmt::format("{}.{}", properties.major, properties.minor),
          .driver = fmt::format("{}.{}", driver / 1000, driver % 1000 / 10),
          .cublaslt = std::to_string(cublaslt().get_version()),
          .cudnn = std::to_string(at::detail::getCUDAHooks().versionRuntimeCuDNN())};
}
#else
ChoicePlace choice_place(at::Device) { throw std::logic_error("this build has no CUDA"); }
#endif

}  // namespace narrowgauge::ops
