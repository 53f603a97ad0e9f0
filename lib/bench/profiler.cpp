#include "lib/bench/profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>

namespace narrowgauge::bench {

std::vector<KernelEvent> record_kernels(const std::function<void()>& body) {
  namespace profiler = torch::autograd::profiler;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<torch::profiler::impl::ActivityType> activities{torch::profiler::impl::ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  body();
  const auto recorded = profiler::disableProfiler();
  std::vector<KernelEvent> events;
  for (const profiler::KinetoEvent& event : recorded->events()) {
    if (event.deviceType() != c10::DeviceType::CUDA) continue;  // calls of the CUDA runtime
    events.push_back({.name = event.name(),
                      .begin = static_cast<int64_t>(event.startNs()),
                      .end = static_cast<int64_t>(event.endNs())});
  }
  return events;
}

}  // namespace narrowgauge::bench
