#include "cuda/launch_delay.h"

#include <atomic>
#include <chrono>
#include <cmath>

#include "cuda/error.h"

namespace narrowgauge::cuda {
namespace {

std::atomic<double> delay{0};  // microseconds
std::atomic<int64_t> delayed{0};

}  // namespace

void set_launch_delay(double microseconds) {
  require(std::isfinite(microseconds) && microseconds >= 0, "set_launch_delay: negative or not finite");
  delay.store(microseconds, std::memory_order_relaxed);
  delayed = 0;
}

void launch_delay() {
  const double microseconds = delay.load(std::memory_order_relaxed);
  if (microseconds == 0) return;
  ++delayed;
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  while (std::chrono::duration<double, std::micro>(Clock::now() - begin).count() < microseconds) {
  }
}

int64_t delayed_launches() { return delayed; }

}  // namespace narrowgauge::cuda
