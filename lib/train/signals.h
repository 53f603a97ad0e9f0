#pragma once

namespace narrowgauge::train {

// Turns SIGINT and SIGTERM into a stop request as long as it lives: interruption_point()
// (lib/base/interruption.h) throws from `grace` seconds after the signal on. The previous handlers come back
// afterwards, and the request is withdrawn. A second signal ends the process at once with exit code 128 +
// signal. One object at a time.
class StopSignals {
 public:
  explicit StopSignals(double grace);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] bool requested() const;
  [[nodiscard]] const char* name() const;  // "SIGINT", "SIGTERM", or "" when none came
};

}  // namespace narrowgauge::train
