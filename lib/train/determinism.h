#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/train/device.h"

namespace narrowgauge::train {

// Whether a run uses only kernels that give the same bits twice.
struct Determinism {
  bool on = false;
  std::string why;  // for people; empty: the config says so
};

// What that costs at most. Attention's backward is the only kernel with a price.
struct DeterminismPrice {
  double extra_ms;        // attention of all layers in a micro-batch, over the fastest kernels
  double micro_batch_ms;  // what was timed of that micro-batch, which takes longer; 0: nothing was
  int64_t extra_bytes;    // scratch
  int64_t free_bytes;     // device memory that the plan without it leaves
  bool products = true;   // matrix products are among what was timed
};

// train.deterministic: auto is on where it costs at most this part of a step.
inline constexpr double kDeterminismLimit = 0.03;
Determinism decide_determinism(const DeterminismPrice& price);

// What train.deterministic means for a run. auto is on where that costs nothing: on the CPU, in fp32. On a
// GPU in bf16 it is what ops::choices() has in force (of a checkpoint), whatever else changed, or else
// decided by the times of attention both ways, which are taken unless choices() knows them; then it is put
// into force there, as is what the config says. `products_ms` (all products of a micro-batch, 0: not known)
// and `budget` (device bytes of the process) are what the price is compared with. The config's
// memory.recompute and train.micro_batch are no longer auto. Before the model is built, so that the memory is
// free; leaves set_numerics() for the answer in force.
Determinism resolve_determinism(const Config& config, const ComputeDevice& device, double products_ms,
                                int64_t budget);

// The same for a model that is only run: nothing is timed, and auto that is not known is off.
bool known_determinism(const Config& config, const ComputeDevice& device);

// The key among ops::choices() of a run's answer, true or false: of the model and what it reads, not of how a
// step is cut, so that a resumed run keeps it.
std::string determinism_key(const Config& config);

}  // namespace narrowgauge::train
