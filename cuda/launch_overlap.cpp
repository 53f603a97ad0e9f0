#include "cuda/launch_overlap.h"

#include <atomic>

namespace narrowgauge::cuda {
namespace {

std::atomic<bool> allowed{true};

}  // namespace

void set_launch_overlap(bool on) { allowed.store(on, std::memory_order_relaxed); }

bool launch_overlap() { return allowed.load(std::memory_order_relaxed); }

}  // namespace narrowgauge::cuda
