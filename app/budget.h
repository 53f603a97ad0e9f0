#pragma once
#include <cstdint>
#include <string>

#include "app/cli.h"
#include "lib/config/config.h"

namespace narrowgauge::app {

// An option such as "14.5GiB" in bytes. UserError names the option.
int64_t bytes_of(const Arguments& arguments, const std::string& name);

// Device memory that a run may take.
struct Budget {
  int64_t bytes;
  std::string rule;  // where it comes from
};

// memory.budget, or the card's `total` bytes less --reserve (else memory.reserve) where that is not more.
// UserError when the reserve leaves nothing.
Budget find_budget(const Arguments& arguments, const Config& config, int64_t total);

}  // namespace narrowgauge::app
