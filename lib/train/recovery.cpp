#include "lib/train/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/units.h"

namespace narrowgauge::train {
namespace {

constexpr int64_t kLeastPart = 50;  // a smaller plan needs less by this part at least

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string describe(const plan::Choice& choice) {
  return fmt::format("micro-batch {}, recompute {}", choice.micro_batch, plan::levels_text(choice.levels));
}

}  // namespace

void Recovery::attempt(const std::string& what, const std::function<void()>& work) {
  std::optional<plan::Plan> next;
  for (int failures = 1;; ++failures) {
    std::string problem;
    try {
      if (next) adopt_(*next);
      next.reset();
      work();
      return;
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      problem = fmt::format("{}: the device's memory is not enough ({})", what, first_line(error.what()));
    }
    release_cached_memory();
    if (failures == 1) {
      log_warn(problem + "; cached memory was released, once more");
    } else {
      next = smaller(problem, 0);
    }
  }
}

void Recovery::shrink(const std::string& problem, int64_t bytes) {
  const plan::Plan next = smaller(problem, bytes);
  attempt(problem, [&] {
    if (plan::choice_of(session_.config) != next.choice) adopt_(next);
  });
}

plan::Plan Recovery::smaller(const std::string& problem, int64_t bytes) {
  const std::optional<plan::Plan> now = session_.plan();
  if (!now) {
    throw UserError(problem +
                    "; set memory.plan to auto, lower train.micro_batch or set memory.recompute to block");
  }
  session_.memory->lower(session_.memory->available());
  const int64_t least = std::max(bytes, now->memory.bytes() / kLeastPart);
  const int64_t budget = std::min(session_.memory->budget(), now->memory.bytes() - least);
  std::optional<plan::Plan> next = session_.planner->within(budget, session_.config);
  if (!next) {
    throw UserError(fmt::format("{}, and no smaller plan is left: {}", problem,
                                session_.planner->shortfall(budget, session_.config)));
  }
  log_warn(fmt::format("{}; going on with {} ({}) instead of {} ({}), the same data and tokens a step",
                       problem, describe(next->choice), format_bytes(next->memory.bytes()),
                       describe(now->choice), format_bytes(now->memory.bytes())));
  return *next;
}

}  // namespace narrowgauge::train
