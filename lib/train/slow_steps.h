#pragma once
#include <cstddef>
#include <deque>

namespace narrowgauge::train {

// Notices that training has become slow: kInARow steps that each took more than kSlow times the running
// median of the steps before them. Those steps do not enter the median.
class SlowSteps {
 public:
  static constexpr double kSlow = 1.3;
  static constexpr int kInARow = 3;

  // Seconds of the step that has just ended. True when it completes a row of slow ones; the next row begins
  // after it.
  bool add(double seconds);
  // Forgets everything, for when steps are about to take another time.
  void restart();
  // Seconds; 0 before the first step.
  [[nodiscard]] double median() const;

 private:
  static constexpr size_t kWindow = 31;  // steps of the running median
  static constexpr size_t kFewest = 8;   // of it before it judges

  std::deque<double> recent_;
  int in_a_row_ = 0;
};

}  // namespace narrowgauge::train
