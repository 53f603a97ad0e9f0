#pragma once
// The living template of a kernel: copy scale.{h,cu} and tests/cuda/scale_test.cpp to start a new one.
#include <cstdint>

#include "cuda/flat_launch.h"
#include "cuda/stream.h"

namespace narrowgauge::cuda {

// y[i] = factor * x[i], computed in fp32 and rounded once. y == x is allowed; other overlap is not.
template <class T>
struct Scale {
  T* y;           // (count)
  const T* x;     // (count)
  int64_t count;  // >= 0; 0 launches nothing
  float factor;
};

// Pure function of the card's limits: what `scale` will launch. A thread moves 16 bytes at a time.
constexpr FlatLaunch plan_scale(int64_t count, int element_bytes, const DeviceLimits& limits) {
  return plan_flat(ceil_div<int64_t>(count * element_bytes, 16), limits);
}

// Asynchronous on `stream`. T: float, bf16. Throws LaunchError (null pointer, negative count) before the
// launch and CudaError after it.
template <class T>
void scale(const Scale<T>& args, const DeviceLimits& limits, Stream stream);

}  // namespace narrowgauge::cuda
