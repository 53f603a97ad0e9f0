#include "lib/plan/plan.h"

#include "lib/base/error.h"
#include "lib/plan/advice.h"

namespace narrowgauge::plan {

Plan plan_of(const Request& request, const Rates& rates, const Choice& choice) {
  const TimeModel time(request.config, rates);
  Plan plan{.config = with_choice(request.config, choice),
            .choice = choice,
            .memory = MemoryModel(request.config, request.surroundings).use(choice),
            .time = time.step(choice),
            .budget = request.budget,
            .tokens_per_second = 0,
            .estimated = rates.estimated()};
  plan.tokens_per_second = time.tokens_per_second(plan.time.total());
  return plan;
}

Plan make_plan(const Request& request, const Rates& rates) {
  const std::vector<Candidate> best = search(request, rates);
  if (best.empty()) throw UserError(shortfall(request, rates));
  return plan_of(request, rates, best.front().choice);
}

}  // namespace narrowgauge::plan
