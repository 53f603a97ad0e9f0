#pragma once
#include "lib/bench/machine.h"
#include "lib/config/config.h"

namespace narrowgauge::bench {

struct StepOptions {
  int64_t steps = 20;       // measured
  int64_t warmup = 3;       // before them
  bool speed_only = false;  // no breakdown, no wall
  double launch_delay = 0;  // microseconds that every launch keeps the host busy: lib/bench/slow_host.h
  bool overlap = true;      // kernels are set up while the one before them ends: cuda/launch_overlap.h
};

// Whole optimizer steps of the config's model on random tokens: speed, memory and how much of it has left the
// card, where one step's time goes, and the wall of its bare kernels. UserError when it does not fit.
Json bench_step(Machine& machine, const Config& config, const StepOptions& options);

}  // namespace narrowgauge::bench
