#pragma once
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>

namespace narrowgauge::test {

// Bytes that LibTorch's CPU allocator gave out to this thread.
struct Allocations {
  int64_t largest = 0;  // one block
  int64_t peak = 0;     // all live blocks
};

// Runs `body` and watches its allocations.
template <class Body>
Allocations record_allocations(Body&& body) {
  struct Recorder : c10::MemoryReportingInfoBase {
    Allocations seen;
    int64_t live = 0;
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      live += bytes;
      seen.largest = std::max(seen.largest, bytes);
      seen.peak = std::max(seen.peak, live);
    }
    bool memoryProfilingEnabled() const override { return true; }
  };
  const auto recorder = std::make_shared<Recorder>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, recorder);
    body();
  }
  return recorder->seen;
}

}  // namespace narrowgauge::test
