// Embedding look-up and its deterministic gradient: a sum over runs of equal tokens, without atomics.
#include <algorithm>
#include <cmath>

#include "cuda/embedding.h"
#include "cuda/launch.cuh"
#include "cuda/vec.cuh"

namespace narrowgauge::cuda {
namespace {

constexpr int kForwardThreads = 256;
constexpr int kBackwardWarps = 8;  // of a block: sorted positions that it looks at together
constexpr int kLongRun = 31;       // equal tokens from which the warps of a block share a run
constexpr int kUnroll = 4;         // rows that a warp has in flight

template <class T, int kWidth>
__global__ void __launch_bounds__(kForwardThreads) forward_kernel(EmbeddingForward<T> a) {
  wait_for_inputs();
  using Packed = Vec<T, kWidth>;
  const int64_t packs = a.width / kWidth;
  Packed nan;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) nan.v[k] = from_float<T>(NAN);
  for (int64_t row = blockIdx.x; row < a.count; row += gridDim.x) {
    const int32_t token = a.tokens[row];
    const bool valid = token >= 0 && token < a.vocab;
    const auto* from = reinterpret_cast<const Packed*>(a.weight + (valid ? token : 0) * a.width);
    auto* to = reinterpret_cast<Packed*>(a.out + row * a.width);
    for (int64_t p = threadIdx.x; p < packs; p += blockDim.x) to[p] = valid ? from[p] : nan;
  }
}

template <class T, int kWidth>
__device__ __forceinline__ Vec<T, kWidth> load_row(bool inside, const T* p) {
  if constexpr (kWidth == kVec<T>) {
    return load_or_zero(inside, p);
  } else {
    Vec<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.v[k] = inside ? p[k] : from_float<T>(0.0f);
    return out;
  }
}

// sum += this lane's columns of `count` rows of dy (the same for the whole warp), in order. Row i is held by
// lane first_lane + i. `dy` points to the columns in row 0.
template <class T, int kWidth>
__device__ __forceinline__ void add_rows(float (&sum)[kWidth], const T* dy, int64_t width, bool inside,
                                         int32_t row_of_lane, int first_lane, int count) {
#pragma unroll 1
  for (int first = 0; first < count; first += kUnroll) {
    Vec<T, kWidth> rows[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t row = __shfl_sync(0xffffffffu, row_of_lane, (first_lane + first + u) % 32);
      rows[u] = load_row<T, kWidth>(inside && first + u < count, dy + row * width);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float x[kWidth];
      widen(x, rows[u]);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum[k] += x[k];
    }
  }
}

// kWidth columns of a row of dweight.
template <int kWidth>
__device__ __forceinline__ void load_columns(float (&x)[kWidth], bool inside, const float* p) {
  constexpr int kPart = kWidth % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int k = 0; k < kWidth; k += kPart) {
    const Vec<float, kPart> part = load_row<float, kPart>(inside, p + k);
#pragma unroll
    for (int i = 0; i < kPart; ++i) x[k + i] = part.v[i];
  }
}

template <int kWidth>
__device__ __forceinline__ void store_columns(float* p, const float (&x)[kWidth]) {
  constexpr int kPart = kWidth % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int k = 0; k < kWidth; k += kPart) {
    Vec<float, kPart> part;
#pragma unroll
    for (int i = 0; i < kPart; ++i) part.v[i] = x[k + i];
    store_vec(p + k, part);
  }
}

// The token at a sorted position, and its row; outside [0, count) the row is 0 and `inside` false.
struct Sorted {
  template <class T>
  __device__ __forceinline__ Sorted(const EmbeddingBackward<T>& a, int64_t position)
      : inside(position >= 0 && position < a.count),
        row(inside ? a.order[position] : 0),
        token(inside ? a.tokens[row] : 0) {}
  bool inside;
  int32_t row;
  int32_t token;
};

// A block looks at kBackwardWarps sorted positions, a warp each, and owns 32 * kWidth columns. A warp at the
// first of a run of equal tokens adds the run's rows, which its lanes find together, unless the run is long:
// then, at most once in a block, every warp takes 32 rows in turn, and the warps' sums are added in order.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBackwardWarps * 32) backward_kernel(EmbeddingBackward<T> a) {
  wait_for_inputs();
  __shared__ float partial[kBackwardWarps][kWidth][33];  // 33: no bank conflicts when read by column
  __shared__ int64_t long_head;
  __shared__ int32_t long_token;
  static_assert(kBackwardWarps <= kLongRun, "two heads of long runs in one block");
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first_column = int64_t{blockIdx.x} * 32 * kWidth;
  const int64_t column = first_column + lane * kWidth;
  const bool inside = column < a.width;  // kWidth divides width
  const T* dy = a.dy + column;

  for (int64_t group = blockIdx.y; group * kBackwardWarps < a.count; group += gridDim.y) {
    const int64_t head = group * kBackwardWarps + warp;
    const Sorted mine(a, head - 1 + lane);  // lane 0: the position before
    const int32_t token = __shfl_sync(0xffffffffu, mine.token, 1);
    const unsigned equal = __ballot_sync(0xffffffffu, mine.inside && mine.token == token);
    const bool starts = head < a.count && (equal & 1u) == 0 && token >= 0 && token < a.vocab;
    const int run = __ffs(static_cast<int>(~(equal >> 1))) - 1;  // rows that lanes 1, 2, ... hold
    const bool is_long = starts && run >= kLongRun;
    if (starts && !is_long) {
      float* to = a.dweight + token * a.width + column;
      float total[kWidth];
      load_columns(total, inside, to);  // on its way with the rows
      float sum[kWidth] = {};
      add_rows<T, kWidth>(sum, dy, a.width, inside, mine.row, 1, run);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) total[k] += sum[k];
      if (inside) store_columns(to, total);
    }
    if (is_long && lane == 0) {
      long_head = head;
      long_token = token;
    }
    if (!__syncthreads_or(is_long)) continue;

    float sum[kWidth] = {};
    for (int64_t first = long_head + warp * 32;; first += kBackwardWarps * 32) {
      const Sorted row(a, first + lane);
      const int rows = __popc(__ballot_sync(0xffffffffu, row.inside && row.token == long_token));
      add_rows<T, kWidth>(sum, dy, a.width, inside, row.row, 0, rows);
      if (rows < 32) break;
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) partial[warp][k][lane] = sum[k];
    __syncthreads();
    const int c = static_cast<int>(threadIdx.x);
    if (c < 32 * kWidth && first_column + c < a.width) {
      float total = 0.0f;
#pragma unroll
      for (int w = 0; w < kBackwardWarps; ++w) total += partial[w][c % kWidth][c / kWidth];
      a.dweight[long_token * a.width + first_column + c] += total;
    }
    __syncthreads();
  }
}

void check_sizes(int64_t count, int64_t width, int64_t vocab) {
  require(count >= 0 && count <= INT32_MAX, "embedding: count must be in [0, 2^31)");
  require(width >= 1 && width < (int64_t{1} << 20), "embedding: width must be in [1, 2^20)");
  require(vocab >= 1 && vocab <= INT32_MAX, "embedding: vocab must be in [1, 2^31)");
}

}  // namespace

EmbeddingLaunch plan_embedding_forward(int64_t count, int64_t width, int lanes, const DeviceLimits& limits) {
  const int64_t threads = ceil_div<int64_t>(width / lanes, 32) * 32;
  const int block = static_cast<int>(threads > kForwardThreads ? kForwardThreads : threads);
  const int64_t resident = int64_t{limits.sm_count} * (limits.max_threads_per_sm / block);
  return {.threads = block, .row_blocks = count < resident ? count : resident, .column_blocks = 1};
}

EmbeddingLaunch plan_embedding_backward(int64_t count, int64_t width, int lanes, const DeviceLimits&) {
  constexpr int64_t kMostRowBlocks = 65535;  // a limit of the second dimension; the kernel goes on from there
  return {.threads = kBackwardWarps * 32,
          .row_blocks = std::min(ceil_div<int64_t>(count, kBackwardWarps), kMostRowBlocks),
          .column_blocks = ceil_div<int64_t>(width / lanes, 32)};
}

template <class T>
void embedding_forward(const EmbeddingForward<T>& args, const DeviceLimits& limits, Stream stream) {
  check_sizes(args.count, args.width, args.vocab);
  if (args.count == 0) return;
  require(args.out && args.weight && args.tokens, "embedding_forward: null pointer");
  const bool vectors = aligned16(args.out) && aligned16(args.weight) && args.width % kVec<T> == 0;
  const auto plan = plan_embedding_forward(args.count, args.width, vectors ? kVec<T> : 1, limits);
  const auto blocks = static_cast<unsigned>(plan.row_blocks);
  if (vectors) {
    launch_kernel("embedding_forward", forward_kernel<T, kVec<T>>, blocks, plan.threads, 0, stream, args);
  } else {
    launch_kernel("embedding_forward", forward_kernel<T, 1>, blocks, plan.threads, 0, stream, args);
  }
}

template <class T>
void embedding_backward(const EmbeddingBackward<T>& args, const DeviceLimits& limits, Stream stream) {
  check_sizes(args.count, args.width, args.vocab);
  if (args.count == 0) return;
  require(args.dweight && args.dy && args.tokens && args.order, "embedding_backward: null pointer");
  const bool vectors = aligned16(args.dy) && aligned16(args.dweight) && args.width % kVec<T> == 0;
  const auto plan = plan_embedding_backward(args.count, args.width, vectors ? kVec<T> : 1, limits);
  // Blocks that run together take whole rows.
  const dim3 grid(static_cast<unsigned>(plan.column_blocks), static_cast<unsigned>(plan.row_blocks));
  if (vectors) {
    launch_kernel("embedding_backward", backward_kernel<T, kVec<T>>, grid, plan.threads, 0, stream, args);
  } else {
    launch_kernel("embedding_backward", backward_kernel<T, 1>, grid, plan.threads, 0, stream, args);
  }
}

template void embedding_forward<float>(const EmbeddingForward<float>&, const DeviceLimits&, Stream);
template void embedding_forward<bf16>(const EmbeddingForward<bf16>&, const DeviceLimits&, Stream);
template void embedding_backward<float>(const EmbeddingBackward<float>&, const DeviceLimits&, Stream);
template void embedding_backward<bf16>(const EmbeddingBackward<bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
