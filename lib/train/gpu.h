#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "lib/plan/rates.h"

namespace narrowgauge::train {

// A GPU as its driver describes it.
struct GpuFacts {
  std::string name;
  int64_t total_bytes = 0;
  plan::RatesKey key;  // what is measured on it is kept under
};

// The one that open_device("auto") opens; nothing when that is the CPU. No context is made: the card's memory
// stays as it is.
std::optional<GpuFacts> find_gpu();

}  // namespace narrowgauge::train
