#pragma once
#include <cstdint>
#include <string>

#include "lib/config/config.h"
#include "lib/train/device.h"

namespace narrowgauge::train {

// Whether a run uses only kernels that give the same bits twice.
struct Determinism {
  bool on;
  std::string why;  // for people; empty: the config says so
};

// What that costs. Attention's backward is the only kernel with a price.
struct DeterminismPrice {
  double extra_ms;        // attention of all layers in a micro-batch, over the fastest kernels
  double micro_batch_ms;  // products and the fastest attention: less than the whole micro-batch
  int64_t extra_bytes;    // scratch
  int64_t free_bytes;     // device memory that the plan without it leaves
};

// train.deterministic: auto is on where it costs at most this part of a step.
inline constexpr double kDeterminismLimit = 0.03;
Determinism decide_determinism(const DeterminismPrice& price);

// What train.deterministic means for a run. auto on a GPU in bf16 times attention both ways unless
// ops::choices() knows; `products_ms` (all products of a micro-batch, 0: not known) and `cap` (bytes of
// allocations) are what the price is compared with. The config's memory.recompute and train.micro_batch are
// no longer auto. Before the model is built, so that the memory is free; leaves set_numerics() for the answer
// in force.
Determinism resolve_determinism(const Config& config, const ComputeDevice& device, double products_ms,
                                int64_t cap);

}  // namespace narrowgauge::train
