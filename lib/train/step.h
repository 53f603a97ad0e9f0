#pragma once
#include <cstddef>
#include <functional>

#include "lib/data/loader.h"
#include "lib/model/transformer.h"
#include "lib/optim/optimizer.h"
#include "lib/train/batch.h"
#include "lib/train/fence.h"
#include "lib/train/graph.h"

namespace narrowgauge::train {

// What an optimizer step leaves behind. Sums run over the counted targets of the global batch.
struct StepResult {
  double loss_sum = 0;  // cross-entropy alone
  double z_loss_sum = 0;
  double lse_sum = 0;
  cuda::StepState state;
};

// One optimizer step: micro-batches forward and backward, then the update. Queues work and reads results one
// step late, so that the device never waits for the host; the host waits for the device only where it is more
// than kMicroBatchesAhead ahead of it, so that what it is asked between micro-batches is asked in time. No
// files, no printing.
class Step {
 public:
  // Both must outlive it. `sequences` of a global batch at most, `micro_batch` of them at once. With
  // `cuda_graphs` (use_cuda_graphs) micro-batches and the update become graphs once each of their shapes has
  // run: the first two steps are slower.
  Step(model::Transformer& model, optim::Optimizer& optimizer, int64_t sequences, int64_t micro_batch,
       bool cuda_graphs = false);

  // The host batch may change as soon as this returns.
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
  static constexpr size_t kMicroBatchesAhead = 3;  // the one that the device works on is the first of them
  struct Late {
    at::Tensor host;  // as sums_
    Fence fence;
  };
  bool queue(const data::GlobalBatch& batch, const cuda::StepInput& input,
             const std::function<bool(double)>& go_on);
  // All micro-batches forward and backward; false when they were given up.
  bool accumulate(const std::function<bool(double)>& go_on);
  void add_gradients(const model::Batch& piece);
  [[nodiscard]] StepResult read(size_t slot, const cuda::StepState& state) const;

  model::Transformer& model_;
  optim::Optimizer& optimizer_;
  int64_t micro_batch_;
  DeviceBatch batch_;
  at::Tensor sums_;          // those of ops::LossSums
  at::Tensor one_;           // the loss's own gradient
  std::vector<Fence> ends_;  // of the last micro-batches, used in turn
  size_t end_ = 0;           // the oldest of them
  std::vector<Late> late_;   // two, used in turn
  size_t slot_ = 0;          // of the last step
  cuda::StepState previous_state_;
  Graphs graphs_;
  const void* slab_ = nullptr;  // that the graphs work in
};

}  // namespace narrowgauge::train
