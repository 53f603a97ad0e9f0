#include "cuda/gradient_norm.h"

#include <algorithm>

#include "cuda/launch.cuh"
#include "cuda/vec.cuh"

namespace narrowgauge::cuda {
namespace {

constexpr int kWarps = kGradNormThreads / 32;
constexpr int64_t kStride = int64_t{kGradNormPartials} * kGradNormThreads;  // in vectors

// Sum over the block; valid in thread 0. `shared` is free again after the call.
__device__ double block_sum_fp64(double x, double* shared) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kWarps; ++warp) sum += shared[warp];
  }
  __syncthreads();
  return sum;
}

template <class G>
__device__ __forceinline__ float square_sum(const Vec<G>& x, float sum) {
  float g[kVec<G>];
  widen(g, x);
#pragma unroll
  for (int i = 0; i < kVec<G>; ++i) sum = __fmaf_rn(g[i], g[i], sum);
  return sum;
}

__device__ __forceinline__ double square(double x) { return x * x; }

// The elements of thread `first` (an index of vectors) of all partials, once more in fp64.
template <class G>
__device__ __noinline__ double square_sum_fp64(const G* grad, int64_t first, int64_t vectors, int64_t count) {
  double sum = 0;
  for (int64_t vector = first; vector < vectors; vector += kStride) {
    for (int i = 0; i < kVec<G>; ++i) sum += square(to_float(grad[vector * kVec<G> + i]));
  }
  const int64_t tail = vectors * kVec<G> + first;
  if (first < kVec<G> && tail < count) sum += square(to_float(grad[tail]));
  return sum;
}

template <class G>
__global__ void __launch_bounds__(kGradNormThreads) gradient_norm_kernel(const GradientNorm<G> args) {
  wait_for_inputs();
  __shared__ double shared[kWarps];
  const int64_t vectors = args.count / kVec<G>;
  for (int partial = static_cast<int>(blockIdx.x); partial < kGradNormPartials;
       partial += static_cast<int>(gridDim.x)) {
    const int64_t first = int64_t{partial} * kGradNormThreads + threadIdx.x;
    float sums[kGradNormUnroll] = {};
    int64_t vector = first;
    for (; vector + (kGradNormUnroll - 1) * kStride < vectors; vector += kGradNormUnroll * kStride) {
      Vec<G> x[kGradNormUnroll];
#pragma unroll
      for (int u = 0; u < kGradNormUnroll; ++u) {
        x[u] = load_vec(args.grad + (vector + u * kStride) * kVec<G>);
      }
#pragma unroll
      for (int u = 0; u < kGradNormUnroll; ++u) sums[u] = square_sum(x[u], sums[u]);
    }
    for (; vector < vectors; vector += kStride) {
      sums[0] = square_sum(load_vec(args.grad + vector * kVec<G>), sums[0]);
    }
    // The elements after the last whole vector belong to the first threads of partial 0.
    const int64_t tail = vectors * kVec<G> + first;
    if (first < kVec<G> && tail < args.count) {
      const float g = to_float(args.grad[tail]);
      sums[1] = __fmaf_rn(g, g, sums[1]);
    }
    double sum = (static_cast<double>(sums[0]) + sums[1]) + (static_cast<double>(sums[2]) + sums[3]);
    if (!isfinite(sum)) sum = square_sum_fp64(args.grad, first, vectors, args.count);
    sum = block_sum_fp64(sum, shared);
    if (threadIdx.x == 0) args.partials[partial] = sum;
  }
}

__global__ void __launch_bounds__(kGradNormThreads) finish_kernel(const FinishGradientNorm args) {
  wait_for_inputs();
  __shared__ double shared[kWarps];
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < args.partial_count; i += kGradNormThreads) {
    sum += args.partials[i];
  }
  sum = block_sum_fp64(sum, shared);
  if (threadIdx.x == 0) finish_step(*args.state, sum, args.rules);
}

}  // namespace

GradientNormLaunch plan_gradient_norm(const DeviceLimits& limits) {
  const int resident = limits.sm_count * (limits.max_threads_per_sm / kGradNormThreads);
  return {.threads = kGradNormThreads, .blocks = std::clamp(resident, 1, kGradNormPartials)};
}

template <class G>
void gradient_norm(const GradientNorm<G>& args, const DeviceLimits& limits, Stream stream) {
  require(args.count >= 0, "gradient_norm: negative count");
  require(args.partials != nullptr, "gradient_norm: null partials");
  require(args.count == 0 || args.grad != nullptr, "gradient_norm: null gradient");
  require(aligned16(args.grad), "gradient_norm: gradient is not 16-byte aligned");
  const GradientNormLaunch launch = plan_gradient_norm(limits);
  launch_kernel("gradient_norm", gradient_norm_kernel<G>, launch.blocks, launch.threads, 0, stream, args);
}

void finish_gradient_norm(const FinishGradientNorm& args, Stream stream) {
  require(args.state != nullptr && args.partials != nullptr, "finish_gradient_norm: null pointer");
  require(args.partial_count >= 0, "finish_gradient_norm: negative partial_count");
  launch_kernel("finish_gradient_norm", finish_kernel, 1, kGradNormThreads, 0, stream, args);
}

template void gradient_norm(const GradientNorm<float>&, const DeviceLimits&, Stream);
template void gradient_norm(const GradientNorm<bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
