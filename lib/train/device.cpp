#include "lib/train/device.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/units.h"

#if NARROWGAUGE_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace narrowgauge::train {
namespace {

int64_t resident_peak() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

#if NARROWGAUGE_CUDA
constexpr int64_t kContextAtMost = int64_t{1}
                                   << 30;            // more than this at the start belongs to other processes
constexpr int64_t kFreeMargin = int64_t{128} << 20;  // of the card, which the driver may need itself

struct DeviceUse {
  int64_t used;
  int64_t free;
};

// Of the current device.
DeviceUse device_use() {
  size_t free = 0;
  size_t total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return {static_cast<int64_t>(total - free), static_cast<int64_t>(free)};
}

c10::CachingDeviceAllocator::DeviceStats allocator_stats(at::Device device) {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
}

constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

ComputeDevice open_cuda() {
  const at::Device device(at::kCUDA, 0);
  at::globalContext().lazyInitDevice(at::kCUDA);
  c10::cuda::set_device(device.index());
  C10_CUDA_CHECK(cudaFree(nullptr));  // creates the context
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device.index());
  int driver = 0;
  C10_CUDA_CHECK(cudaDriverGetVersion(&driver));
  return {.device = device,
          .name = properties->name,
          .driver = fmt::format("CUDA driver {}.{}", driver / 1000, driver % 1000 / 10),
          .total_bytes = static_cast<int64_t>(properties->totalGlobalMem)};
}

bool cuda_present() { return c10::cuda::device_count() > 0; }
#endif

}  // namespace

ComputeDevice open_device(const std::string& request) {
  if (request != "auto" && request != "cuda" && request != "cpu") {
    throw UserError(fmt::format("the device must be auto, cuda or cpu, but is \"{}\"", request));
  }
#if NARROWGAUGE_CUDA
  if (request != "cpu" && cuda_present()) return open_cuda();
  constexpr const char* kWhy = "no CUDA device answers (check nvidia-smi and the driver)";
#else
  constexpr const char* kWhy = "this program was built without CUDA";
#endif
  if (request == "cuda") {
    throw UserError(fmt::format(
        "train.device is cuda, but {}; set train.device to cpu or auto to train on the CPU", kWhy));
  }
  return {};
}

void name_memory_errors(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::OutOfMemoryError& error) {
    const std::string what = error.what_without_backtrace();
    throw UserError(
        fmt::format("the device's memory is not enough: {}; lower train.micro_batch or memory.loss_chunk, "
                    "set memory.recompute to "
                    "block, or raise memory.budget",
                    what.substr(0, what.find('\n'))));
  }
}

void set_numerics(bool deterministic) {
  auto& context = at::globalContext();
  context.setAllowBF16ReductionCuBLAS(false);
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  context.setDeterministicAlgorithms(deterministic, false);
  context.setDeterministicCuDNN(deterministic);
  context.setBenchmarkCuDNN(false);
  context.setDeterministicFillUninitializedMemory(false);
  // cuBLAS is deterministic across streams only with workspaces of a fixed size, and LibTorch insists on it.
  if (deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
}

DeviceMemory::DeviceMemory(const ComputeDevice& device, int64_t budget, int64_t reserve)
    : device_(device), budget_(budget) {
  if (!device_.device.is_cuda()) return;
#if NARROWGAUGE_CUDA
  const DeviceUse use = device_use();
  const int64_t context = std::min(use.used, kContextAtMost);
  others_ = use.used - context;
  const int64_t available = use.free + context - kFreeMargin;
  if (budget_ > available) {
    log_warn(fmt::format("memory.budget is {}, but only {} of the card are free: capped to that",
                         format_bytes(budget_), format_bytes(available)));
  }
  if (budget_ == 0) {
    budget_ = available - reserve;
    if (budget_ <= context) {
      throw UserError(fmt::format(
          "memory.reserve ({}) leaves nothing of the {} that are free on the card; lower it, close other "
          "programs or set memory.budget",
          format_bytes(reserve), format_bytes(available)));
    }
  }
  budget_ = std::min(budget_, available);
  set_cap(context);
#endif
}

void DeviceMemory::set_cap(int64_t outside) {
  cap_ = budget_ - outside;
  if (cap_ <= 0) {
    throw UserError(
        fmt::format("memory.budget is {}, but {} of the card is taken before the model is loaded; raise "
                    "memory.budget or close other programs",
                    format_bytes(budget_), format_bytes(outside)));
  }
#if NARROWGAUGE_CUDA
  const double fraction = static_cast<double>(cap_) / static_cast<double>(device_.total_bytes);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(std::min(fraction, 1.0), device_.device.index());
#endif
}

int64_t DeviceMemory::available() const {
#if NARROWGAUGE_CUDA
  if (device_.device.is_cuda()) {
    // Other programs may take what was free at the start beside the budget, but not what is counted in it.
    const DeviceUse use = device_use();
    const int64_t reserved = allocator_stats(device_.device).reserved_bytes[kAll].current;
    return std::min(budget_, use.free - kFreeMargin + reserved + (budget_ - cap_));
  }
#endif
  return budget_;
}

void DeviceMemory::lower(int64_t budget) {
  budget_ = std::min(budget_, budget);
  tighten();
}

void DeviceMemory::tighten() {
  if (!device_.device.is_cuda()) return;
#if NARROWGAUGE_CUDA
  const int64_t reserved = allocator_stats(device_.device).reserved_bytes[kAll].current;
  set_cap(std::max<int64_t>(0, device_use().used - others_ - reserved));
#endif
}

MemoryPeaks DeviceMemory::sample() {
  if (!device_.device.is_cuda()) return {.device = resident_peak()};
#if NARROWGAUGE_CUDA
  device_peak_ = std::max(device_peak_, device_use().used - others_);
  const auto stats = allocator_stats(device_.device);
  return {.allocated = stats.allocated_bytes[kAll].peak,
          .reserved = stats.reserved_bytes[kAll].peak,
          .device = device_peak_};
#else
  return {};
#endif
}

void release_cached_memory() {
#if NARROWGAUGE_CUDA
  c10::cuda::CUDACachingAllocator::emptyCache();
  static_cast<void>(cudaGetLastError());  // a failed allocation leaves one behind
#endif
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  const std::string what = error.what();
  return dynamic_cast<const c10::Error*>(&error) != nullptr &&
         (what.find("out of memory") != std::string::npos || what.find("ALLOC_FAILED") != std::string::npos);
}

at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
  return at::empty(shape, at::TensorOptions().dtype(dtype).pinned_memory(device.is_cuda()));
}

}  // namespace narrowgauge::train
