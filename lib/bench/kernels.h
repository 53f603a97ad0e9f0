#pragma once
#include "lib/bench/machine.h"
#include "lib/bench/timer.h"
#include "lib/config/config.h"

namespace narrowgauge::bench {

// A device-to-device copy that reads and writes `bytes` in all, half each.
Prepared prepare_copy(at::Device device, int64_t bytes);
Spread time_copy(const Gpu& gpu, int64_t bytes);
// Copies of several sizes: {"best_gb_s", "sizes": [...]}. Rates are in 10^9 bytes a second, read and written.
Json measure_copies(const Machine& machine);

// Name, shape, bytes, times, rate and how they compare with a copy and a target; `best_copy` as above.
Json measure_case(const Machine& machine, const Measured& measured, double best_copy);

// Every kernel of cuda/ at the model's shapes with 4096 and 16384 rows.
Json bench_kernels(Machine& machine, const Config& config);

}  // namespace narrowgauge::bench
