#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda/step_state.h"
#include "lib/config/optim_config.h"

namespace narrowgauge::optim {

// One run of elements of the flat weight buffer that is updated alike. All numbers count elements; begin and end
// are multiples of 256.
struct UpdateRange {
  int64_t begin;
  int64_t end;
  int64_t grad_begin;   // where the range starts in the gradient buffer of its dtype
  bool grad_is_low;     // true: `grad`; false: `grad32`
  bool eight_bit;       // states as 8-bit codes, else fp32
  bool decay;           // weight decay applies
};

// The flat buffers of a model, owned by model::ParameterArena.
struct FlatBuffers {
  at::Tensor weights;  // bf16 or fp32
  at::Tensor grad;     // matrices; bf16 or fp32; may be empty
  at::Tensor grad32;   // embedding, head, norms; fp32
  std::vector<UpdateRange> ranges;
};

// AdamW with 8-bit block-wise states (Dettmers et al. 2022) and decoupled decay (Loshchilov and Hutter 2019), the
// global norm, clipping and the finite check. Nothing in `step` waits for the device.
class Optimizer {
 public:
  Optimizer(FlatBuffers buffers, const OptimConfig& config);

  // Norm, skip decision, clip factor and update, all read from the device struct; `input` is copied there first.
  void step(const cuda::StepInput& input);

  // The device struct after all queued steps. Synchronises with the device.
  [[nodiscard]] cuda::StepState read_state() const;
  // Copies the struct after step s into pinned memory, to be read once the next step has been queued: returns the
  // state as of the previous call, or of the initial state at the first. No wait unless the copy is still in flight.
  cuda::StepState read_state_late();
  void write_state(const cuda::StepState& state);  // on resume

  // Everything that a checkpoint must hold, by name: flat tensors, views of the optimizer's own storage, in a fixed
  // order ("m.codes", "m.scales", "v.codes", "v.scales", "m.fp32", "v.fp32", "remainder" or "master"). Empty ones
  // are left out.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> state_tensors() const;

  // After weights were set from outside (import, init): makes the master agree with them.
  void reset_master();

  // The fp32 master value of every weight, as a flat fp32 tensor on the CPU (split and fp32), or the weights
  // themselves widened.
  [[nodiscard]] at::Tensor master_weights() const;

  [[nodiscard]] int64_t bytes() const;  // of states and master

 private:
  FlatBuffers buffers_;
  OptimConfig config_;
  at::Tensor state_;  // cuda::StepState as bytes, on the device
  at::Tensor late_;   // pinned copy
};

}  // namespace narrowgauge::optim
