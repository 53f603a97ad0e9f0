#pragma once
#include <vector>

#include "lib/config/config.h"
#include "lib/plan/rates.h"
#include "lib/train/device.h"

namespace narrowgauge::bench {

// Measures the probes on a GPU at work, with the kernels that training by this config would choose: what the
// disk cache of choices lacks is timed, with `byte_limit` bytes of device memory at most, and cached. A probe
// whose buffers do not fit into the process's memory, or that no kernel takes, is left out. A gap between
// kernels is what a boundary between two kernels of a graph adds to moving the same bytes. Leaves
// train::set_numerics as for such a run, no choices in force and no cached memory.
std::vector<plan::Measurement> calibrate(const train::ComputeDevice& device, const Config& config,
                                         const std::vector<plan::Probe>& probes, int64_t byte_limit);

}  // namespace narrowgauge::bench
