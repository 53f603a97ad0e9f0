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

// V elements, moved by one load or store; V = 1 for pointers that are not aligned to 16 bytes.
template <class T, int V = kVec<T>>
struct alignas(V * sizeof(T)) Vec {
  T v[V];
};

template <class T, int V = kVec<T>>
__device__ __forceinline__ Vec<T, V> load_vec(const T* p) {
  return *reinterpret_cast<const Vec<T, V>*>(p);
}

// The vector at p, or zeros. As 16 raw bytes: a choice between two Vec of bf16 is made element by element,
// and waits for the load.
template <class T>
__device__ __forceinline__ Vec<T> load_or_zero(bool inside, const T* p) {
  uint4 raw = {};
  if (inside) raw = *reinterpret_cast<const uint4*>(p);
  Vec<T> out;
  reinterpret_cast<uint4&>(out) = raw;
  return out;
}

template <class T, int V>
__device__ __forceinline__ void store_vec(T* p, const Vec<T, V>& x) {
  *reinterpret_cast<Vec<T, V>*>(p) = x;
}

// The V values as fp32.
template <class T, int V>
__device__ __forceinline__ void widen(float (&out)[V], const Vec<T, V>& x) {
  if constexpr (sizeof(T) == 2 && V % 2 == 0) {
#pragma unroll
    for (int k = 0; k < V; k += 2) {  // a bf16 is the upper half of its fp32
      const unsigned pair = reinterpret_cast<const unsigned*>(x.v)[k / 2];
      out[k] = __uint_as_float(pair << 16);
      out[k + 1] = __uint_as_float(pair & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = to_float(x.v[k]);
  }
}

// Makes the compiler forget what it derived from x, so that x waits in its packed form: without this, a bf16
// vector that is used again later is kept as fp32 in twice the registers.
template <class T>
__device__ __forceinline__ void keep_packed(Vec<T>& x) {
#pragma unroll
  for (int k = 0; k < 4; ++k) asm volatile("" : "+r"(reinterpret_cast<unsigned*>(x.v)[k]));
}

// Rounds V values to T, two at a time where T is bf16.
template <class T, int V>
__device__ __forceinline__ Vec<T, V> round_vec(const float (&x)[V]) {
  Vec<T, V> out;
  if constexpr (sizeof(T) == 2 && V % 2 == 0) {
#pragma unroll
    for (int k = 0; k < V; k += 2) {
      reinterpret_cast<__nv_bfloat162*>(out.v)[k / 2] = __floats2bfloat162_rn(x[k], x[k + 1]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) out.v[k] = from_float<T>(x[k]);
  }
  return out;
}

}  // namespace narrowgauge::cuda
