#include "lib/bench/nvml.h"

#include <dlfcn.h>

namespace narrowgauge::bench {
namespace {

// nvml.h: handles are opaque pointers, every call returns 0 on success.
using NvmlDevice = void*;
constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;
constexpr int kTemperatureGpu = 0;

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  NvmlDevice device = nullptr;
  int (*shutdown)() = nullptr;
  int (*clock)(NvmlDevice, int, unsigned*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;  // milliwatts
  int (*temperature)(NvmlDevice, int, unsigned*) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;

  template <class F>
  bool find(F& function, const char* name) const {
    function = reinterpret_cast<F>(::dlsym(handle, name));
    return function != nullptr;
  }
};

Nvml::Nvml(const std::string& pci) {
  auto library = std::make_unique<Library>();
  library->handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr) return;
  int (*init)() = nullptr;
  int (*by_pci)(const char*, NvmlDevice*) = nullptr;
  const bool found = library->find(init, "nvmlInit_v2") && library->find(library->shutdown, "nvmlShutdown") &&
                     library->find(by_pci, "nvmlDeviceGetHandleByPciBusId_v2") &&
                     library->find(library->clock, "nvmlDeviceGetClockInfo") &&
                     library->find(library->power, "nvmlDeviceGetPowerUsage") &&
                     library->find(library->temperature, "nvmlDeviceGetTemperature") &&
                     library->find(library->driver_version, "nvmlSystemGetDriverVersion");
  if (!found || init() != 0) {
    ::dlclose(library->handle);
    return;
  }
  if (by_pci(pci.c_str(), &library->device) != 0) library->device = nullptr;
  library_ = std::move(library);
}

Nvml::~Nvml() {
  if (!library_) return;
  library_->shutdown();
  ::dlclose(library_->handle);
}

std::optional<Clocks> Nvml::clocks() const {
  if (!library_ || library_->device == nullptr) return std::nullopt;
  const auto read = [](auto call) {
    unsigned value = 0;
    return call(&value) == 0 ? static_cast<int>(value) : 0;
  };
  NvmlDevice device = library_->device;
  Clocks clocks;
  clocks.sm_mhz = read([&](unsigned* out) { return library_->clock(device, kClockSm, out); });
  clocks.memory_mhz = read([&](unsigned* out) { return library_->clock(device, kClockMemory, out); });
  clocks.watts = read([&](unsigned* out) { return library_->power(device, out); }) / 1000.0;
  clocks.celsius = read([&](unsigned* out) { return library_->temperature(device, kTemperatureGpu, out); });
  return clocks;
}

std::string Nvml::driver() const {
  char text[96] = {};
  if (!library_ || library_->driver_version(text, sizeof text) != 0) return "";
  return text;
}

}  // namespace narrowgauge::bench
