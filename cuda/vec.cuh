#pragma once
// Values of T grouped for 16-byte loads and stores, and conversion to fp32.
#include <cuda_bf16.h>

#include <cstdint>

namespace narrowgauge::cuda {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// kVec<T> elements of T fill 16 bytes.
template <class T>
inline constexpr int kVec = 16 / static_cast<int>(sizeof(T));

template <class T>
struct alignas(16) Vec {
  T v[kVec<T>];
};

template <class T>
__device__ __forceinline__ Vec<T> load_vec(const T* p) {
  return *reinterpret_cast<const Vec<T>*>(p);
}

template <class T>
__device__ __forceinline__ void store_vec(T* p, const Vec<T>& x) {
  *reinterpret_cast<Vec<T>*>(p) = x;
}

}  // namespace narrowgauge::cuda
