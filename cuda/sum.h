#pragma once
#include <cstdint>
#include <span>

#include "cuda/stream.h"

namespace narrowgauge::cuda {

// The threads whose partial sums form the result, in one block: fixed, so that the order of the additions
// depends on the count alone. Thread t adds x[t], x[t + kSumThreads], ...; then a butterfly in every warp,
// then one over the warps' sums.
inline constexpr int kSumThreads = 1024;

inline constexpr int kSumsAtOnce = 3;

// *out += the sum of x[i], or of x[i]^2 with `squares`, in fp32.
struct SumInto {
  float* out;      // one value
  const float* x;  // (count); not *out
  int64_t count;   // >= 0
  bool squares;
};

// At most kSumsAtOnce sums in one launch, where none reads or writes what another writes; only empty ones
// launch nothing. Asynchronous on `stream`. Throws LaunchError (too many, null pointer, negative count)
// before the launch and CudaError after it.
void sum_into(std::span<const SumInto> sums, Stream stream);

}  // namespace narrowgauge::cuda
