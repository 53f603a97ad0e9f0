#pragma once
// The plan of a run: what `narrowgauge plan` prints and `train` obeys.
#include "lib/plan/search.h"

namespace narrowgauge::plan {

struct Plan {
  Config config;  // with the choice in the place of every auto
  Choice choice;
  MemoryUse memory;
  StepTime time;
  int64_t budget = 0;
  double tokens_per_second = 0;
  bool estimated = false;  // no measured rates

  [[nodiscard]] int64_t margin() const { return budget - memory.bytes(); }
};

// The fastest plan that fits the budget. UserError with what is missing and the nearest remedy when none
// does.
Plan make_plan(const Request& request, const Rates& rates);
// The same of a choice that is already made, whether it fits or not.
Plan plan_of(const Request& request, const Rates& rates, const Choice& choice);

}  // namespace narrowgauge::plan
