#pragma once
#include <cstdint>

#include "cuda/device_limits.h"
#include "cuda/stream.h"

namespace narrowgauge::cuda {

// out[i] = weight[tokens[i]]. A token outside [0, vocab) gives a row of NaN.
template <class T>
struct EmbeddingForward {
  T* out;                 // (count, width), contiguous
  const T* weight;        // (vocab, width), contiguous
  const int32_t* tokens;  // (count)
  int64_t count;          // >= 0; 0 launches nothing
  int64_t width;          // >= 1
  int64_t vocab;          // >= 1
};

// dweight[t] += the sum over {i: tokens[i] == t} of dy[i], in fp32. The order of the sum depends on the
// tokens alone. A token outside [0, vocab) adds nothing. `order` is the one permutation with
// tokens[order[j]] ascending, and order[j] ascending among equal tokens (not checked).
template <class T>
struct EmbeddingBackward {
  float* dweight;         // (vocab, width), contiguous
  const T* dy;            // (count, width), contiguous
  const int32_t* tokens;  // (count)
  const int32_t* order;   // (count)
  int64_t count;          // >= 0; 0 launches nothing
  int64_t width;          // >= 1
  int64_t vocab;          // >= 1
};

struct EmbeddingLaunch {
  int threads;
  int64_t row_blocks;     // they stride over: tokens; backward: groups of sorted positions
  int64_t column_blocks;  // backward only; forward: 1
};

// Pure functions of the card's limits. `lanes`: elements of one access (1 when rows are not on 16 bytes).
EmbeddingLaunch plan_embedding_forward(int64_t count, int64_t width, int lanes, const DeviceLimits& limits);
EmbeddingLaunch plan_embedding_backward(int64_t count, int64_t width, int lanes, const DeviceLimits& limits);

// Asynchronous on `stream`. T: float, bf16. Throw LaunchError (null pointer, bad sizes) before the launch and
// CudaError after it.
template <class T>
void embedding_forward(const EmbeddingForward<T>& args, const DeviceLimits& limits, Stream stream);
template <class T>
void embedding_backward(const EmbeddingBackward<T>& args, const DeviceLimits& limits, Stream stream);

}  // namespace narrowgauge::cuda
