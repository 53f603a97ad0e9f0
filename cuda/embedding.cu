// Embedding look-up and its deterministic gradient: a sum over runs of equal tokens, without atomics.
#include <cmath>

#include "cuda/embedding.h"
#include "cuda/launch.cuh"
#include "cuda/vec.cuh"

namespace narrowgauge::cuda {
namespace {

constexpr int kForwardThreads = 256;
constexpr int kBackwardWarps = 8;
constexpr int kUnroll = 4;  // rows that a warp has in flight

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T v[kWidth];
};

template <class T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(p);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kForwardThreads) forward_kernel(EmbeddingForward<T> a) {
  wait_for_inputs();
  using Packed = Pack<T, kWidth>;
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

// A block owns kWidth * 32 columns of the run of equal tokens that starts at its sorted position; other
// positions have nothing to do. Warp w adds rows w, w + kBackwardWarps, ... of the run; the warps' sums are
// added in order.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBackwardWarps * 32) backward_kernel(EmbeddingBackward<T> a) {
  wait_for_inputs();
  __shared__ float partial[kBackwardWarps][kWidth][33];  // 33: no bank conflicts when read by column
  const int64_t head = blockIdx.x;
  const int32_t token = a.tokens[a.order[head]];
  if (head > 0 && a.tokens[a.order[head - 1]] == token) return;
  if (token < 0 || token >= a.vocab) return;

  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * 32 + lane) * kWidth;
  const bool inside = column < a.width;  // kWidth divides width

  Pack<T, kWidth> zero;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) zero.v[k] = from_float<T>(0.0f);
  float sum[kWidth] = {};
  for (int64_t first = head + warp;; first += kBackwardWarps * kUnroll) {
    bool more = false;
    Pack<T, kWidth> rows[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t position = first + u * kBackwardWarps;
      const int64_t row = position < a.count ? a.order[position] : 0;
      more = position < a.count && a.tokens[row] == token;
      rows[u] = more && inside ? load_pack<T, kWidth>(a.dy + row * a.width + column) : zero;
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum[k] += to_float(rows[u].v[k]);
    }
    if (!more) break;
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) partial[warp][k][lane] = sum[k];
  __syncthreads();
  const int64_t first_column = static_cast<int64_t>(blockIdx.y) * 32 * kWidth;
  for (int c = static_cast<int>(threadIdx.x); c < 32 * kWidth; c += kBackwardWarps * 32) {
    if (first_column + c >= a.width) break;
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < kBackwardWarps; ++w) total += partial[w][c % kWidth][c / kWidth];
    a.dweight[token * a.width + first_column + c] += total;
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
  return {.threads = kBackwardWarps * 32,
          .row_blocks = count,
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
  const bool vectors = aligned16(args.dy) && args.width % kVec<T> == 0;
  const auto plan = plan_embedding_backward(args.count, args.width, vectors ? kVec<T> : 1, limits);
  const dim3 grid(static_cast<unsigned>(plan.row_blocks), static_cast<unsigned>(plan.column_blocks));
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
