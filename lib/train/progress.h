#pragma once
#include <cstdint>
#include <string>

#include "lib/config/log_config.h"
#include "lib/train/metrics.h"

namespace narrowgauge::train {

// One line about a finished step: "step 120/1000  loss 3.4512  lr 3.00e-04  norm 0.82  76.3K tok/s  MFU 41.2%
// mem 13.2 GiB  ETA 1h02m". What is unknown is left out. `memory` in bytes, `eta` in seconds (negative:
// unknown).
std::string progress_line(const StepReport& report, int64_t steps, int64_t memory, double eta);

// When to print: on a terminal a live line, at most five times a second; elsewhere a plain line every
// log.every steps and for the first and last step.
class Progress {
 public:
  Progress(const LogConfig& config, int64_t steps);

  [[nodiscard]] bool due(int64_t step, double now) const;
  void show(const std::string& line, double now);
  void clear() const;  // removes the live line

 private:
  bool live_;
  int64_t every_;
  int64_t steps_;
  bool shown_ = false;
  double last_ = 0;
};

}  // namespace narrowgauge::train
