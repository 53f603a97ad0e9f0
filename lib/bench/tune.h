#pragma once
// Real runs of the best choices of a plan, and the fastest of them.
#include <filesystem>
#include <vector>

#include "lib/bench/table.h"
#include "lib/bench/trial.h"

namespace narrowgauge::bench {

struct TuneRequest {
  plan::Request plan;  // its candidates: how many choices run
  plan::TunedKey key;
  std::filesystem::path cache;  // a file as lib/plan/tuned.h has it
  bool fresh = false;           // forget what was measured before
};

struct Tuning {
  std::vector<plan::Trial> trials;  // all that the key has, in the order in which they ran
  bool interrupted = false;         // runner.stop ended it: some choices did not run
};

// Runs the choices of plan::pick_trials that the cache does not have yet (those that failed, too) and keeps
// each in the cache as it ends; a line tells how. UserError when nothing fits the budget.
Tuning tune(const TuneRequest& request, const plan::Rates& rates, const TrialRunner& runner);

// One row a trial, the fastest that may be chosen first.
Table tuning_table(const Tuning& tuning, const TuneRequest& request);

// The fastest trial that ran. UserError with what became of them when none did.
const plan::Trial& chosen(const Tuning& tuning, const TuneRequest& request);

// "micro-batch 2, recompute 24 x elementwise, loss chunk 4096".
std::string choice_text(const plan::Choice& choice);

}  // namespace narrowgauge::bench
