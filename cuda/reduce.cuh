#pragma once
// Sums and maxima over a warp or a block, in a fixed order (two runs give the same bits).

namespace narrowgauge::cuda {

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  }
  return x;
}

// Sum over a block whose size is a multiple of 32. `shared` holds 32 floats; every thread gets the
// result. Callers that reuse `shared` put a __syncthreads() between two calls.
__device__ __forceinline__ float block_sum(float x, float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  x = warp_sum(x);
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

}  // namespace narrowgauge::cuda
