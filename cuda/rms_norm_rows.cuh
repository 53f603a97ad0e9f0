#pragma once
// What the forward and the backward RMSNorm kernels share: where a row lies and how threads share it.
#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"

namespace narrowgauge::cuda {

// The place of one row in tensors that share `group` and `cols` and differ in their strides.
struct RowPlace {
  int64_t outer;   // row / group
  int64_t offset;  // row % group * cols

  __device__ __forceinline__ RowPlace(int64_t row, int64_t group, int64_t cols)
      : outer(group == 1 ? row : row / group), offset(group == 1 ? 0 : (row - outer * group) * cols) {}

  template <class T>
  __device__ __forceinline__ T* of(T* p, int64_t stride) const {
    return p + outer * stride + offset;
  }
};

// The first of the N vectors of thread `lane` of a row; the others follow at distances of 32 (a constant, so
// that one register addresses them all). N = 1 where fewer than 32 threads share a row.
template <int N>
__device__ __forceinline__ int first_vector(int lane) {
  return lane / 32 * (32 * N) + lane % 32;
}

// A thread's vectors of a row; those at or beyond `vectors` read as zero.
template <class T, int N>
__device__ __forceinline__ void load_row(Vec<T> (&out)[N], const T* row, int first, int vectors) {
  row += first * kVec<T>;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    out[i] = load_or_zero(first + 32 * i < vectors, row + i * (32 * kVec<T>));
  }
}

// Sum over the threads that share a row (`lanes` a power of two: within a warp, or the whole block). Every
// thread of the block calls it. `shared`: 32 floats that no thread still reads from an earlier call.
__device__ __forceinline__ float row_sum(float x, int lanes, float* shared) {
  if (lanes > 32) return block_sum(x, shared);
  for (int offset = lanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

}  // namespace narrowgauge::cuda
