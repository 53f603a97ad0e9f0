#pragma once
#include <cstdint>

#include "lib/bench/json.h"
#include "lib/bench/nvml.h"
#include "lib/train/device.h"

namespace narrowgauge::bench {

// The GPU that is measured, opened and capped as training does it.
class Machine {
 public:
  // `budget`: bytes of device memory of the whole process; 0: what is free. UserError when no GPU answers.
  Machine(int64_t budget, bool deterministic);

  [[nodiscard]] at::Device device() const { return compute_.device; }
  [[nodiscard]] const train::ComputeDevice& compute() const { return compute_; }
  [[nodiscard]] int64_t l2_bytes() const { return l2_bytes_; }
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
  int64_t l2_bytes_ = 0;
  Nvml nvml_;
  train::DeviceMemory memory_;
};

void synchronise(at::Device device);  // waits for everything queued
using train::release_cached_memory;

}  // namespace narrowgauge::bench
