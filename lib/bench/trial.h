#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/child_process.h"
#include "lib/config/config.h"
#include "lib/plan/search.h"
#include "lib/plan/tuned.h"

namespace narrowgauge::bench {

// How choices are measured: each in a process of its own.
struct TrialRunner {
  std::string program;           // narrowgauge
  std::filesystem::path folder;  // for files that only the children need
  int64_t steps = 8;             // measured
  int64_t warmup = 3;            // before them
  std::function<bool()> stop;    // asked while a child runs
  std::function<decltype(run_child)> run = run_child;
};

// Seconds after which a child with so many steps is killed: minutes to start (kernels may have to be timed
// first), then four times what was predicted.
double trial_limit(double predicted_step, int64_t steps);

// Runs `bench step --speed-only` on the config with the candidate in place and a budget of so many bytes, and
// judges what it left behind. Nothing: it was stopped. UserError when the child cannot be started.
std::optional<plan::Trial> run_trial(const Config& config, int64_t budget, const plan::Candidate& candidate,
                                     const TrialRunner& runner);

}  // namespace narrowgauge::bench
