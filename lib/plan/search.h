#pragma once
// The fastest choice that fits a budget: of every micro-batch that divides the step's sequences, every number
// of layers at each recompute level and every loss chunk.
#include <optional>
#include <string>
#include <vector>

#include "lib/plan/memory.h"
#include "lib/plan/time.h"

namespace narrowgauge::plan {

struct Request {
  Config config;  // what is not auto in it is kept
  Surroundings surroundings;
  int64_t budget = 0;                // device bytes of the whole process
  std::vector<int64_t> loss_chunks;  // to choose from; empty: memory.loss_chunk
  size_t candidates = 1;             // how many of the fastest are wanted
};

struct Candidate {
  Choice choice;
  int64_t bytes = 0;   // device bytes of the process at the peak
  double seconds = 0;  // of a step
};

// Why another micro-batch or chunk was not taken.
struct Loser {
  Candidate best;  // its fastest that fits; where none does its smallest
  bool fits = false;
};

struct SearchResult {
  // The fastest that fit, ascending by predicted seconds; of equal ones the larger chunk, the smaller
  // micro-batch, then more layers at the levels that keep more. Empty: nothing fits.
  std::vector<Candidate> best;
  std::vector<Loser> losers;          // the best of every other micro-batch and chunk
  std::optional<Candidate> smallest;  // with fewest bytes of all; only when nothing fits
};

// Exact: what testing every choice with its real layout would find, among levels sorted by depth. The same
// request gives the same result.
SearchResult search(const Request& request, const Rates& rates);

// A change of the config with which something fits, or a faster plan does.
struct Remedy {
  std::string change;  // "optim.master=stochastic"
  Candidate candidate;
};

// Single changes after which the request fits, those that change least first: a smaller loss chunk, less
// exact states, a shorter context. Only for a request that does not fit. Empty: none of them is enough.
std::vector<Remedy> remedies(const Request& request, const Rates& rates);

// What less exact types or another loss chunk would gain over `best`: a choice for the user alone.
std::vector<Remedy> temptations(const Request& request, const Rates& rates, const Candidate& best);

// One sentence for a request that does not fit: what is missing and the nearest remedy.
std::string shortfall_text(const Request& request, const Rates& rates, const Candidate& smallest);

}  // namespace narrowgauge::plan
