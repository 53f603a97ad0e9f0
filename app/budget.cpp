#include "app/budget.h"

#include <fmt/format.h>

#include "lib/base/error.h"
#include "lib/base/units.h"

namespace narrowgauge::app {

int64_t bytes_of(const Arguments& arguments, const std::string& name) {
  try {
    return parse_bytes(arguments.text(name));
  } catch (const UserError& error) {
    throw UserError(fmt::format("--{}: {}", name, error.what()));
  }
}

Budget find_budget(const Arguments& arguments, const Config& config, int64_t total) {
  const int64_t reserve = arguments.given("reserve") ? bytes_of(arguments, "reserve") : config.memory.reserve;
  const int64_t left = total - reserve;
  if (left <= 0) {
    throw UserError(fmt::format("--reserve: {} leave nothing of the card's {}; reserve less",
                                format_bytes(reserve), format_bytes(total)));
  }
  if (config.memory.budget > 0 && config.memory.budget <= left)
    return {config.memory.budget, "memory.budget"};
  return {left, fmt::format("{} less a reserve of {}", format_bytes(total), format_bytes(reserve))};
}

}  // namespace narrowgauge::app
