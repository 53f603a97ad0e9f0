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

struct CardFacts {
  std::string pci;
  int64_t l2_bytes = 0;
};

#if NARROWGAUGE_CUDA
CardFacts card_facts(at::Device device) {
  const cudaDeviceProp* card = at::cuda::getDeviceProperties(device.index());
  return {.pci = fmt::format("{:08x}:{:02x}:{:02x}.0", card->pciDomainID, card->pciBusID, card->pciDeviceID),
          .l2_bytes = card->l2CacheSize};
}
int64_t cudnn_version() { return at::detail::getCUDAHooks().versionRuntimeCuDNN(); }
#else
CardFacts card_facts(at::Device) { return {}; }
int64_t cudnn_version() { return 0; }
#endif

}  // namespace

Machine::Machine(int64_t budget, bool deterministic)
    : compute_(open_gpu()),
      l2_bytes_(card_facts(compute_.device).l2_bytes),
      nvml_(card_facts(compute_.device).pci),
      memory_(compute_, budget, /*reserve=*/0) {
  train::set_numerics(deterministic);
}

Json Machine::head(const char* bench) const {
  const std::string driver = nvml_.driver();
  return {{"bench", bench},          {"narrowgauge", kVersion},
          {"device", compute_.name}, {"driver", driver.empty() ? compute_.driver : driver},
          {"torch", TORCH_VERSION},  {"cudnn", cudnn_version()},
          {"l2_bytes", l2_bytes_},   {"memory_cap", memory_.cap()},
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

}  // namespace narrowgauge::bench
