#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/step_state.h"
#include "lib/config/optim_config.h"
#include "lib/layout/ranges.h"
#include "lib/ops/adamw.h"

namespace narrowgauge::optim {

// The flat buffers of a model, owned by model::ParameterArena.
struct FlatBuffers {
  at::Tensor weights;  // bf16 or fp32
  at::Tensor grad;     // matrices; bf16 or fp32; may be empty
  at::Tensor grad32;   // embedding, head, norms; fp32
  std::vector<layout::UpdateRange> ranges;
};

// AdamW with 8-bit block-wise states (Dettmers et al. 2022) and decoupled decay (Loshchilov and Hutter 2019),
// the global norm, clipping and the finite check. Nothing in `step` waits for the device.
class Optimizer {
 public:
  Optimizer(FlatBuffers buffers, const OptimConfig& config);

  // write_input, then update.
  void step(const cuda::StepInput& input);
  // Puts what the host decides into the device struct.
  void write_input(const cuda::StepInput& input);
  // Norm, skip decision, clip factor and update, all read from the device struct: the part that a graph may
  // capture.
  void update();

  // StepInput::inverse_tokens on the device: an fp32 scalar, a view of the device struct.
  [[nodiscard]] at::Tensor inverse_tokens() const;

  // The device struct after all queued steps. Synchronises with the device.
  [[nodiscard]] cuda::StepState read_state() const;
  // Copies the struct after step s into pinned memory, to be read once the next step has been queued: returns
  // the state as of the previous call, or of the initial state at the first. No wait unless the copy is still
  // in flight.
  cuda::StepState read_state_late();
  void write_state(const cuda::StepState& state);  // on resume

  // Everything that a checkpoint must hold, by name: flat tensors, the optimizer's own storage, in a fixed
  // order ("m.codes", "m.scales", "v.codes", "v.scales", "m.fp32", "v.fp32", kRemainderName or kMasterName).
  // Empty ones are left out.
  [[nodiscard]] const std::vector<std::pair<std::string, at::Tensor>>& state_tensors() const {
    return states_;
  }

  // After weights were set from outside (import, init): makes the master agree with them.
  void reset_master();

 private:
  OptimConfig config_;
  ops::AdamWTensors tensors_;  // weights and gradients are the caller's, the rest is owned
  std::vector<std::pair<std::string, at::Tensor>> states_;  // those of tensors_ that are not empty
  std::vector<cuda::AdamWRange> ranges_;
  cuda::Master master_;
  at::Tensor scratch_;              // of the norm
  std::array<at::Tensor, 2> late_;  // pinned copies of the device struct, written in turn
  std::array<std::optional<c10::Event>, 2> copied_;
  int64_t late_reads_ = 0;
};

}  // namespace narrowgauge::optim
