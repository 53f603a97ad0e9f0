#include "lib/train/card.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#if NARROWGAUGE_CUDA
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#endif

namespace narrowgauge::train {
#if NARROWGAUGE_CUDA
namespace {

// Where a driver does not say.
constexpr double kLeastKilohertz = 1e6;
constexpr double kLeastBits = 128;

double attribute(cudaDeviceAttr which, at::Device device) {
  int value = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device.index()));
  return value;
}

// FLOP of dense bf16 products accumulated in fp32 that a multiprocessor does in a cycle: as the table has it.
double flop_a_cycle(const plan::Card& card) {
  if (card.compute_major == 10) return 8192;
  if (card.compute_major == 9) return 4096;
  if (card.compute_major == 8 && card.compute_minor == 0) return 2048;
  return card.is_geforce() ? 512 : 1024;
}

plan::Card described(const ComputeDevice& device) {
  constexpr std::string_view kMaker = "NVIDIA ";
  std::string_view name = device.name;
  if (name.starts_with(kMaker)) name.remove_prefix(kMaker.size());
  const auto read = [&](cudaDeviceAttr which) { return attribute(which, device.device); };
  const auto kilohertz = [&](cudaDeviceAttr which) { return std::max(kLeastKilohertz, read(which)); };
  const double bytes_a_cycle = 2 * std::max(kLeastBits, read(cudaDevAttrGlobalMemoryBusWidth)) / 8;
  plan::Card card{.name = name,
                  .teraflops = 0,
                  .gibibytes = static_cast<double>(device.total_bytes) / 1073741824.0,
                  .gigabytes_per_second = 1e-6 * kilohertz(cudaDevAttrMemoryClockRate) * bytes_a_cycle,
                  .sm_count = static_cast<int>(read(cudaDevAttrMultiProcessorCount)),
                  .compute_major = static_cast<int>(read(cudaDevAttrComputeCapabilityMajor)),
                  .compute_minor = static_cast<int>(read(cudaDevAttrComputeCapabilityMinor))};
  card.teraflops = 1e-9 * kilohertz(cudaDevAttrClockRate) * card.sm_count * flop_a_cycle(card);
  return card;
}

}  // namespace
#endif

plan::Card card_of(const ComputeDevice& device) {
  if (const plan::Card* card = plan::find_card(device.name)) return *card;
#if NARROWGAUGE_CUDA
  if (device.device.is_cuda()) return described(device);
#endif
  throw std::logic_error("the device is no GPU");
}

}  // namespace narrowgauge::train
