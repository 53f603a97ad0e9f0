#include "lib/ops/device.h"

#include <optional>
#include <stdexcept>

#if NARROWGAUGE_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

namespace narrowgauge::ops {
namespace {

std::optional<cuda::DeviceLimits> forced;

#if NARROWGAUGE_CUDA
c10::DeviceIndex cuda_index(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) throw std::logic_error("a CUDA stream was asked for a tensor on another device");
  return tensor.get_device();
}
#else
[[noreturn]] void no_cuda() { throw std::logic_error("this build has no CUDA"); }
#endif

}  // namespace

#if NARROWGAUGE_CUDA
cuda::Stream current_stream(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(cuda_index(tensor)).stream();
}
cuda::DeviceLimits limits_of(const at::Tensor& tensor) {
  const c10::DeviceIndex index = cuda_index(tensor);
  return forced ? *forced : cuda::device_limits(index);
}
#else
cuda::Stream current_stream(const at::Tensor&) { no_cuda(); }
cuda::DeviceLimits limits_of(const at::Tensor&) { no_cuda(); }
#endif

void override_limits(const cuda::DeviceLimits* limits) {
  forced = limits ? std::optional(*limits) : std::nullopt;
}

}  // namespace narrowgauge::ops
