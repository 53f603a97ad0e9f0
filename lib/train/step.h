#pragma once
#include <functional>

#include "lib/data/loader.h"
#include "lib/model/transformer.h"
#include "lib/optim/optimizer.h"
#include "lib/train/batch.h"
#include "lib/train/fence.h"

namespace narrowgauge::train {

// What an optimizer step leaves behind. Sums run over the counted targets of the global batch.
struct StepResult {
  double loss_sum = 0;  // cross-entropy alone
  double z_loss_sum = 0;
  double lse_sum = 0;
  cuda::StepState state;
};

// One optimizer step: micro-batches forward and backward, then the update. Queues work and waits for nothing;
// results are read one step late. No files, no printing.
class Step {
 public:
  // Both must outlive it. `sequences` of a global batch, `micro_batch` of them at once.
  Step(model::Transformer& model, optim::Optimizer& optimizer, int64_t sequences, int64_t micro_batch);

  // Waits until the last batch has left the host, so that the loader may reuse it.
  void wait_for_upload() const { batch_.wait(); }

  // `go_on` is asked before each micro-batch with the done fraction of the step; when it says no or a stop
  // request interrupts a micro-batch, the partial gradients are dropped, nothing is updated and the answer is
  // false.
  bool run(const data::GlobalBatch& batch, const cuda::StepInput& input,
           const std::function<bool(double)>& go_on = {});

  // Of the step before the last one; waits for that one only. Meaningless before two steps were run.
  [[nodiscard]] StepResult previous() const;
  // Of the last step; waits for the device.
  [[nodiscard]] StepResult latest() const;

 private:
  struct Late {
    at::Tensor host;  // as sums_
    Fence fence;
  };
  // All micro-batches forward and backward; false when they were given up.
  bool accumulate(const std::function<bool(double)>& go_on);
  [[nodiscard]] StepResult read(size_t slot, const cuda::StepState& state) const;

  model::Transformer& model_;
  optim::Optimizer& optimizer_;
  int64_t micro_batch_;
  DeviceBatch batch_;
  at::Tensor sums_;         // those of ops::LossSums
  std::vector<Late> late_;  // two, used in turn
  size_t slot_ = 0;         // of the last step
  cuda::StepState previous_state_;
};

}  // namespace narrowgauge::train
