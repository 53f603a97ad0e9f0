#pragma once
#include <algorithm>
#include <cstdint>

#include "cuda/device_limits.h"

namespace narrowgauge::cuda {

template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

// The launch of a kernel whose threads take independent items i, i + threads * blocks, ...
struct FlatLaunch {
  int threads;
  int blocks;
};

// Pure function: one item a thread while that is at most 64 waves of resident blocks, then a loop.
constexpr FlatLaunch plan_flat(int64_t items, const DeviceLimits& limits) {
  constexpr int kThreads = 256;
  const int64_t wave = int64_t{limits.sm_count} * (limits.max_threads_per_sm / kThreads);
  return {.threads = kThreads,
          .blocks = static_cast<int>(std::min(ceil_div<int64_t>(items, kThreads), 64 * wave))};
}

}  // namespace narrowgauge::cuda
