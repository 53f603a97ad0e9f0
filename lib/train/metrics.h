#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace narrowgauge::train {

// Tokens a second over the last steps. `restart` begins a new window (after an evaluation or a checkpoint,
// whose time is not training's). Times are seconds of any steady clock.
class Throughput {
 public:
  explicit Throughput(size_t window = 20) : window_(window) {}
  void restart(double now);
  void add(double now, int64_t tokens);
  [[nodiscard]] std::optional<double> tokens_per_second() const;
  [[nodiscard]] std::optional<double> seconds_per_step() const;

 private:
  size_t window_;
  std::deque<std::pair<double, int64_t>>
      ends_;  // time, tokens of the step that ended then; the first is the start
};

// What is known of one finished optimizer step.
struct StepReport {
  int64_t step = 0;   // steps done, this one included
  double loss = 0;    // mean cross-entropy over the counted targets
  double z_loss = 0;  // as much as it adds to the loss, a mean too
  double lse_mean = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  int64_t tokens = 0;  // over all resumes
  std::optional<double> tokens_per_second;
  std::optional<double> mfu;  // 0 .. 1; nothing when the card's rate is unknown
  double data_wait_ms = 0;
  int64_t skipped = 0;  // steps skipped so far for a gradient that was not finite
};

}  // namespace narrowgauge::train
