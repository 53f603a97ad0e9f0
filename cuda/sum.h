#pragma once
#include <cstdint>

#include "cuda/stream.h"

namespace narrowgauge::cuda {

// The threads whose partial sums form the result, in one block: fixed, so that the order of the additions
// depends on the count alone. Thread t adds x[t], x[t + kSumThreads], ...; then a butterfly in every warp,
// then one over the warps' sums.
inline constexpr int kSumThreads = 1024;

// *out += the sum of x[i], or of x[i]^2 with `squares`, in fp32.
struct SumInto {
  float* out;      // one value
  const float* x;  // (count); not *out
  int64_t count;   // >= 0; 0 launches nothing
  bool squares;
};

// Asynchronous on `stream`. Throws LaunchError (null pointer, negative count) before the launch and CudaError
// after it.
void sum_into(const SumInto& args, Stream stream);

}  // namespace narrowgauge::cuda
