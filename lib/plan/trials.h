#pragma once
// Which choices are worth a real run.
#include <vector>

#include "lib/plan/search.h"

namespace narrowgauge::plan {

// At most `request.candidates` choices that fit, in the order in which they should run:
//   of every micro-batch the best, the fastest first, unless it should take 10 % longer than the fastest;
//   second, where all of those leave less than a twentieth of the budget, the fastest that leaves as much:
//   the plan may be wrong about memory;
//   the next fastest that are unlike all before them (an eighth of the layers at another level), those that
//   only recompute more than one before last;
//   what was left out at first.
// train.deterministic auto may turn out either way: every second choice is then one for kernels that are not
// deterministic, with their time and memory. The same request gives the same result.
std::vector<Candidate> pick_trials(const Request& request, const Rates& rates);

}  // namespace narrowgauge::plan
