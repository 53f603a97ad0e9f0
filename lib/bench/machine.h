#pragma once
#include <cstdint>

#include "lib/bench/json.h"
#include "lib/bench/nvml.h"
#include "lib/train/device.h"

namespace narrowgauge::bench {

// What a stopwatch needs to know of the GPU that is measured.
struct Gpu {
  explicit Gpu(at::Device on);
  at::Device device;
  int64_t l2_bytes;
};

// The GPU that is measured, opened and capped as training does it.
class Machine {
 public:
  // `budget`: bytes of device memory of the whole process; 0: what is free. UserError when no GPU answers.
  Machine(int64_t budget, bool deterministic);

  [[nodiscard]] at::Device device() const { return compute_.device; }
  [[nodiscard]] const train::ComputeDevice& compute() const { return compute_; }
  [[nodiscard]] const Gpu& gpu() const { return gpu_; }
  [[nodiscard]] train::DeviceMemory& memory() { return memory_; }

  // Device memory that choosing algorithms by timing may use, as in training.
  [[nodiscard]] int64_t timing_bytes() const;
  [[nodiscard]] int64_t cap() const { return memory_.cap(); }  // bytes of allocations

  // Card, driver, library versions, cap and the clocks now: the head of every result.
  [[nodiscard]] Json head(const char* bench) const;
  // Clocks, power and temperature now; null when the driver's library cannot be asked.
  [[nodiscard]] Json clocks() const;

 private:
  train::ComputeDevice compute_;
  Gpu gpu_;
  Nvml nvml_;
  train::DeviceMemory memory_;
};

void synchronise(at::Device device);  // waits for everything queued
using train::release_cached_memory;
int64_t free_bytes(at::Device gpu);  // of its memory, for whatever program asks

}  // namespace narrowgauge::bench
