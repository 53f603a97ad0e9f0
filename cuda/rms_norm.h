#pragma once
// Root mean square normalisation (Zhang and Sennrich 2019): y = x * rstd * weight with
// rstd = 1 / sqrt(mean(x^2) + eps); fp32 inside, one rounding. Row r of a tensor P starts at
//   P + (r / group) * P_stride + (r % group) * cols
// so group 1 is a matrix of strided rows, and group = heads normalises every head of a packed row.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/flat_launch.h"
#include "cuda/stream.h"

namespace narrowgauge::cuda {

// y = norm of x or, when residual is given, sum = x + residual (rounded to T) and y = norm of the rounded
// sum.
template <class T>
struct RmsNorm {
  T* y;                    // (rows, cols); may be x
  float* rstd;             // (rows), dense
  T* sum;                  // (rows, cols); may be x or residual; null exactly when residual is
  const T* x;              // (rows, cols)
  const T* residual;       // (rows, cols) or null
  const T* weight;         // (cols)
  int64_t rows;            // 0 <= rows < 2^31; 0 launches nothing
  int64_t cols;            // >= 1
  int64_t group = 1;       // >= 1
  int64_t y_stride;        // elements between groups, >= group * cols
  int64_t sum_stride = 0;  // the same, when there is a sum
  int64_t x_stride;        // >= 0
  int64_t residual_stride = 0;
  float eps;
};

// dx = rstd * (m - xhat * mean(m * xhat)) + dresidual with m = dy * weight, xhat = x * rstd;
// dweight += the sum of dy * xhat over all rows, in an order that depends on the arguments and limits alone;
// y = xhat * weight, with the bits that RmsNorm gives, for who has not kept it.
template <class T>
struct RmsNormBackward {
  T* dx;                 // (rows, cols); may be dy or dresidual
  T* y = nullptr;        // (rows, cols), may be x; or null: not written
  float* dweight;        // (cols), added to
  float* scratch;        // rms_norm_backward_scratch() floats, contents ignored
  const T* dy;           // (rows, cols)
  const T* x;            // (rows, cols); the rounded sum where forward added
  const T* dresidual;    // (rows, cols), added after the norm's gradient; or null
  const T* weight;       // (cols)
  const float* rstd;     // (rows), dense
  int64_t rows;          // 0 <= rows < 2^31; 0 launches nothing
  int64_t cols;          // >= 1
  int64_t group = 1;     // >= 1
  int64_t dx_stride;     // elements between groups, >= group * cols
  int64_t y_stride = 0;  // the same, when there is a y
  int64_t dy_stride;     // >= 0, as are those below
  int64_t x_stride;
  int64_t dresidual_stride = 0;
};

// A row is shared by `lanes` neighbouring threads (a power of two), each with `vectors` 16-byte vectors of it
// in registers. vectors 0: any width and alignment, a block a row, which reads the row twice.
struct RmsNormLaunch {
  int lanes;
  int vectors;
  int threads;
  int blocks;
  int shared_bytes = 0;  // dynamic
};

inline constexpr int kRmsNormThreads = 128;
inline constexpr int kRmsNormMaxVectors = 8;

// How a row is shared out. `vectorised`: pointers, strides and cols allow 16-byte accesses.
constexpr RmsNormLaunch share_row(int64_t cols, int element_bytes, bool vectorised) {
  const int64_t vectors = cols * element_bytes / 16;
  if (!vectorised || vectors > kRmsNormThreads * kRmsNormMaxVectors) {
    return {.lanes = kRmsNormThreads, .vectors = 0, .threads = kRmsNormThreads, .blocks = 0};
  }
  const auto wanted = vectors <= 32 ? vectors : std::max<int64_t>(32, ceil_div<int64_t>(vectors, 8));
  const auto lanes = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(wanted)));
  return {.lanes = lanes,
          .vectors = static_cast<int>(ceil_div<int64_t>(vectors, lanes)),
          .threads = lanes > 32 ? lanes : kRmsNormThreads,
          .blocks = 0};
}

// Forward: every row at once; a block keeps the weight in shared memory.
constexpr RmsNormLaunch plan_rms_norm(int64_t rows, int64_t cols, int element_bytes, bool vectorised) {
  RmsNormLaunch launch = share_row(cols, element_bytes, vectorised);
  launch.blocks = static_cast<int>(ceil_div<int64_t>(rows, launch.threads / launch.lanes));
  if (launch.vectors > 0) launch.shared_bytes = static_cast<int>(cols * element_bytes);
  return launch;
}

// The backward kernel works on one row of x, dy and dresidual in shared memory while it copies the next.
inline constexpr int kRmsNormStages = 2;
inline constexpr int kRmsNormStagedTensors = 3;

// Blocks of kRmsNormThreads that fit a multiprocessor by their registers in the backward kernel.
constexpr int rms_norm_backward_residency(int vectors) {
  constexpr int kBlocks[kRmsNormMaxVectors + 1] = {8, 8, 5, 4, 3, 3, 2, 2, 2};
  return kBlocks[vectors];
}

// Backward: as many blocks as are resident at once walk over the rows, each with its own partial dweight.
constexpr RmsNormLaunch plan_rms_norm_backward(int64_t rows, int64_t cols, int element_bytes, bool vectorised,
                                               const DeviceLimits& limits) {
  constexpr int kBlockOverhead = 1280;  // bytes: what the card keeps for itself, and the static arrays
  RmsNormLaunch launch = share_row(cols, element_bytes, vectorised);
  launch.shared_bytes = launch.threads * launch.vectors * 16 * kRmsNormStages * kRmsNormStagedTensors;
  const int by_registers = rms_norm_backward_residency(launch.vectors) * (kRmsNormThreads / launch.threads);
  const int by_shared = (limits.shared_bytes_per_block + 1024) / (launch.shared_bytes + kBlockOverhead);
  const int64_t resident = int64_t{limits.sm_count} * std::min(by_registers, by_shared);
  launch.blocks =
      static_cast<int>(std::min(resident, ceil_div<int64_t>(rows, launch.threads / launch.lanes)));
  return launch;
}

// Floats of scratch that rms_norm_backward needs, whatever the alignment of its arguments.
constexpr int64_t rms_norm_backward_scratch(int64_t rows, int64_t cols, int element_bytes,
                                            const DeviceLimits& limits) {
  const bool divisible = cols * element_bytes % 16 == 0;
  const auto blocks = [&](bool vectorised) {
    return plan_rms_norm_backward(rows, cols, element_bytes, vectorised, limits).blocks;
  };
  return cols * std::max(blocks(false), divisible ? blocks(true) : 0);
}

// Asynchronous on `stream`. T: float, bf16. Any size and alignment works; pointers on 16-byte boundaries with
// cols and strides divisible by 16 / sizeof(T), and cols <= 16384 / sizeof(T), are fast. Throw LaunchError
// (null pointer, size or stride out of range) before the launch and CudaError after it.
template <class T>
void rms_norm(const RmsNorm<T>& args, const DeviceLimits& limits, Stream stream);
template <class T>
void rms_norm_backward(const RmsNormBackward<T>& args, const DeviceLimits& limits, Stream stream);

}  // namespace narrowgauge::cuda
