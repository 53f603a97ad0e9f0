#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "lib/bench/machine.h"
#include "lib/config/config.h"
#include "lib/plan/plan.h"
#include "lib/train/residency.h"
#include "lib/train/setup.h"
#include "lib/train/step.h"

namespace narrowgauge::bench {

// A model, its optimizer and its step on random tokens, set up as training does it but without data. The only
// place that calls lib/train's step.
class Trainee {
 public:
  Trainee(Machine& machine, const Config& config);

  void run_step();  // queues one optimizer step
  // Reads all that a step keeps on the device, but 64 MiB of the slab; between steps.
  [[nodiscard]] train::CopySpeeds read_memory() const;
  [[nodiscard]] int64_t tokens_per_step() const { return sequences_ * config_.data.context; }
  // What is about to be measured: sizes, dtypes, choices; after the first step.
  [[nodiscard]] Json describe() const;
  // Loss and skipped steps of the last step; waits for the device.
  [[nodiscard]] Json outcome() const;

 private:
  void make_batches();

  Config config_;
  int64_t sequences_;
  bool cuda_graphs_;
  std::string algorithms_;   // how those of matrix products were chosen
  std::string determinism_;  // why it is or is not; empty: the config says so
  std::optional<plan::Plan> plan_;
  std::unique_ptr<model::Transformer> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<train::Step> step_;
  std::vector<at::Tensor> storage_;  // host memory of the batches
  std::vector<data::GlobalBatch> batches_;
  int64_t steps_ = 0;
};

}  // namespace narrowgauge::bench
