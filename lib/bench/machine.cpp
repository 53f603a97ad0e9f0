#include "lib/bench/machine.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/version.h"

#if NARROWGAUGE_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace narrowgauge::bench {
namespace {

train::ComputeDevice open_gpu() {
  train::ComputeDevice device = train::open_device("auto");
  if (device.device.is_cuda()) return device;
  throw UserError(
      "bench: no CUDA device answers, and only a GPU is measured; check nvidia-smi, the driver and whether "
      "narrowgauge --version says \"with CUDA\"");
}

#if NARROWGAUGE_CUDA
std::string pci_address(at::Device device) {
  const cudaDeviceProp* card = at::cuda::getDeviceProperties(device.index());
  return fmt::format("{:08x}:{:02x}:{:02x}.0", card->pciDomainID, card->pciBusID, card->pciDeviceID);
}
int64_t l2_bytes_of(at::Device device) { return at::cuda::getDeviceProperties(device.index())->l2CacheSize; }
int64_t cudnn_version() { return at::detail::getCUDAHooks().versionRuntimeCuDNN(); }
#else
std::string pci_address(at::Device) { return {}; }
int64_t l2_bytes_of(at::Device) { return 0; }
int64_t cudnn_version() { return 0; }
#endif

}  // namespace

Gpu::Gpu(at::Device on) : device(on), l2_bytes(l2_bytes_of(on)) {}

Machine::Machine(int64_t budget, bool deterministic)
    : compute_(open_gpu()),
      gpu_(compute_.device),
      nvml_(pci_address(compute_.device)),
      memory_(compute_, budget, /*reserve=*/0) {
  train::set_numerics(deterministic);
}

Json Machine::head(const char* bench) const {
  const std::string driver = nvml_.driver();
  return {{"bench", bench},
          {"narrowgauge", kVersion},
          {"device", compute_.name},
          {"driver", driver.empty() ? compute_.driver : driver},
          {"torch", TORCH_VERSION},
          {"cudnn", cudnn_version()},
          {"l2_bytes", gpu_.l2_bytes},
          {"memory_cap", memory_.cap()},
          {"clocks_start", clocks()}};
}

int64_t Machine::timing_bytes() const { return std::min(int64_t{1} << 30, memory_.cap() / 2); }

Json Machine::clocks() const {
  const auto now = nvml_.clocks();
  if (!now) return nullptr;
  return {{"sm_mhz", now->sm_mhz},
          {"memory_mhz", now->memory_mhz},
          {"watts", now->watts},
          {"celsius", now->celsius}};
}

void synchronise(at::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

#if NARROWGAUGE_CUDA
int64_t free_bytes(at::Device gpu) {
  const c10::cuda::CUDAGuard guard(gpu);
  size_t free = 0;
  size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}
#else
int64_t free_bytes(at::Device) { return 0; }
#endif

}  // namespace narrowgauge::bench
