#pragma once
// What else a person could do.
#include <string>
#include <vector>

#include "lib/plan/search.h"

namespace narrowgauge::plan {

// Another choice than the best one, and why it lost.
struct Loser {
  Candidate candidate;  // the fastest that fits; where none does the smallest
  bool fits = false;
};

// Of every other micro-batch and loss chunk the best, ascending by micro-batch, then chunk; and first, when
// the next faster choice with the best one's micro-batch did not fit, that one: fewer layers recompute.
std::vector<Loser> losers(const Request& request, const Rates& rates, const Candidate& best);

// A change of the config and the best that fits after it.
struct Change {
  std::string setting;  // "optim.master=stochastic"
  Candidate candidate;
};

// Single changes after which something fits, those that change least of a run first: what the config fixes
// left to the plan, samples, scratch, a smaller loss chunk, less exact states and gradients, a shorter
// context; of each key the smallest change. Empty: none of them is enough.
std::vector<Change> remedies(const Request& request, const Rates& rates);

// What would gain 0.5 % of a step or more over `best`, the fastest first: keys that the config fixes left to
// the plan, no samples, less exact types, another loss chunk. Such a change is never made unasked.
std::vector<Change> temptations(const Request& request, const Rates& rates, const Candidate& best);

// One sentence for a request that nothing fits: what is missing, the nearest remedies and the budget that is
// enough.
std::string shortfall(const Request& request, const Rates& rates);

}  // namespace narrowgauge::plan
