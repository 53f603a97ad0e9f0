#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/jsonl.h"
#include "lib/config/config.h"
#include "lib/train/device.h"
#include "lib/train/memory_report.h"
#include "lib/train/metrics.h"
#include "lib/train/progress.h"
#include "lib/train/run_folder.h"
#include "lib/train/step.h"

namespace narrowgauge::train {

// What the host knows of a step when it queues it.
struct QueuedStep {
  int64_t step = 0;     // steps done with this one
  int64_t counted = 0;  // targets
  int64_t tokens = 0;   // over all resumes, with this step's
  double learning_rate = 0;
  double data_wait_ms = 0;
};

// Metrics and progress of one program run: one JSON object a line in metrics.jsonl ("event", "step", ...),
// and lines for people. Every row has a step, so that a resume can drop those beyond its checkpoint.
class Reporter {
 public:
  Reporter(const RunFolder& folder, const Config& config, const ComputeDevice& device, DeviceMemory& memory,
           int64_t first_step);

  void event(const char* name, int64_t step, const nlohmann::ordered_json& facts);
  void step(const QueuedStep& queued, const StepResult& result);
  // Peaks so far and, when given, what they consist of.
  void memory(int64_t step, const std::vector<MemoryRow>& rows = {});
  // After anything that is not training, so that its time is not counted in tokens/s.
  void restart_clock();
  void clear_line() const { progress_.clear(); }

  [[nodiscard]] double seconds() const;  // since construction
  [[nodiscard]] std::optional<double> seconds_per_step() const { return throughput_.seconds_per_step(); }

 private:
  JsonLines rows_;
  Progress progress_;
  Throughput throughput_;
  DeviceMemory& memory_;
  bool on_gpu_;
  bool z_loss_;  // is on
  int64_t steps_;
  int64_t tokens_per_step_;
  std::optional<double> ideal_seconds_per_token_;  // at the card's rate
  double start_;
};

}  // namespace narrowgauge::train
