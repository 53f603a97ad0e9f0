#include "lib/base/interruption.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <limits>

namespace narrowgauge {
namespace {

constexpr int64_t kNone = 0;
constexpr double kLongest = 1e9;  // seconds; keeps the deadline inside int64_t

std::atomic<int64_t> deadline = kNone;  // nanoseconds of CLOCK_MONOTONIC
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler writes it");

int64_t now() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

void request_interruption(double seconds) {
  const auto grace = static_cast<int64_t>(std::clamp(seconds, 0.0, kLongest) * 1e9);
  deadline.store(std::max(kNone + 1, now() + grace), std::memory_order_relaxed);
}

void withdraw_interruption() { deadline.store(kNone, std::memory_order_relaxed); }

double seconds_to_interruption() {
  const int64_t end = deadline.load(std::memory_order_relaxed);
  if (end == kNone) return std::numeric_limits<double>::infinity();
  return static_cast<double>(end - now()) * 1e-9;
}

void interruption_point() {
  const int64_t end = deadline.load(std::memory_order_relaxed);
  if (end != kNone && now() >= end) throw Interrupted();
}

}  // namespace narrowgauge
