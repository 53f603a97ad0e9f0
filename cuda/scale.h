#pragma once
// The living template of a kernel: copy scale.{h,cu} and tests/cuda/scale_test.cpp to start a new one.
#include <cstdint>

#include "cuda/device_limits.h"
#include "cuda/stream.h"

namespace narrowgauge::cuda {

// y[i] = factor * x[i], computed in fp32 and rounded once. y == x is allowed.
template <class T>
struct Scale {
  T* y;             // (count)
  const T* x;       // (count)
  int64_t count;    // >= 0; 0 launches nothing
  float factor;
};

struct ScaleLaunch {
  int threads;
  int blocks;
};

// Pure function of the card's limits: what `scale` will launch.
ScaleLaunch plan_scale(int64_t count, const DeviceLimits& limits);

// Asynchronous on `stream`. T: float, bf16. Throws LaunchError (null pointer, negative count) before the
// launch and CudaError after it.
template <class T>
void scale(const Scale<T>& args, const DeviceLimits& limits, Stream stream);

}  // namespace narrowgauge::cuda
