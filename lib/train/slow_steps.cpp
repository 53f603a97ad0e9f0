#include "lib/train/slow_steps.h"

#include <algorithm>
#include <vector>

namespace narrowgauge::train {

double SlowSteps::median() const {
  std::vector<double> sorted(recent_.begin(), recent_.end());
  if (sorted.empty()) return 0;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

bool SlowSteps::add(double seconds) {
  if (recent_.size() >= kFewest && seconds > kSlow * median()) {
    if (++in_a_row_ < kInARow) return false;
    in_a_row_ = 0;
    return true;
  }
  in_a_row_ = 0;
  recent_.push_back(seconds);
  if (recent_.size() > kWindow) recent_.pop_front();
  return false;
}

void SlowSteps::restart() {
  recent_.clear();
  in_a_row_ = 0;
}

}  // namespace narrowgauge::train
