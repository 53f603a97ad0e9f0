#pragma once
// The fastest choice that fits a budget: of every micro-batch that divides the step's sequences, every number
// of layers at each recompute level and every loss chunk.
#include <cstddef>
#include <optional>
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

// Ascending by seconds; of equal ones the larger chunk, the smaller micro-batch, then more layers at the
// levels that keep more.
bool is_better(const Candidate& a, const Candidate& b);

// Micro-batches to choose from, ascending: the config's, or all that divide its sequences.
std::vector<int64_t> micro_batches(const Config& config);

// The fastest `request.candidates` that fit, best first; fewer when fewer fit. Exact: what testing every
// choice with its real layout would find, among levels sorted by depth (a list of levels in the config is
// taken as it stands). The same request gives the same result.
std::vector<Candidate> search(const Request& request, const Rates& rates);

// The choice with fewest bytes among those with one level for all layers (or the config's own levels).
Candidate smallest(const Request& request, const Rates& rates);

}  // namespace narrowgauge::plan
