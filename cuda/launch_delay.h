#pragma once
// An artificial cost of launching, to show on a fast host what a slow one (WSL2) would do to a step.
#include <cstdint>

namespace narrowgauge::cuda {

// From now on every kernel launch of cuda/ and every call of launch_delay() (each product, attention pass and
// graph) keeps the host busy for so many microseconds (at least; the clock's resolution comes on top). 0, the
// initial value: no cost beyond one relaxed read. For the whole process, from any thread. Measurements only,
// and a lower bound: a library's second kernel behind one call is not delayed, LibTorch's copies and fills
// only by lib/bench/slow_host.h, and the device sees nothing of it, so a delay shows only where the host is
// not ahead anyway. Throws LaunchError when it is negative or not finite.
void set_launch_delay(double microseconds);

// Called at a launch that is not made by cuda/.
void launch_delay();

// Launches that were delayed since set_launch_delay was last called.
int64_t delayed_launches();

}  // namespace narrowgauge::cuda
