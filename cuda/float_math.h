#pragma once
// fp32 operations with the same bits on the host and on the device: nothing here is contracted or
// approximated by the compiler, and both sides round to nearest.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda/host_device.h"

namespace narrowgauge::cuda {

NARROWGAUGE_HD uint32_t float_bits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

NARROWGAUGE_HD float bits_float(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

NARROWGAUGE_HD float multiply(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

NARROWGAUGE_HD float add(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

// a * b + c, rounded once.
NARROWGAUGE_HD float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

// a * b + c, rounded up, for a, b >= 0, c > 0 and a result below 2^20 c.
NARROWGAUGE_HD float fused_up(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_ru(a, b, c);
#else
  const float nearest = __builtin_fmaf(a, b, c);
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const bool below = static_cast<double>(nearest) - static_cast<double>(c) < product;
  return bits_float(float_bits(nearest) + (below ? 1u : 0u));
#endif
}

// min and max without a NaN rule (the host compiler turns them into one instruction).
NARROWGAUGE_HD float smaller(float a, float b) {
#ifdef __CUDA_ARCH__
  return fminf(a, b);
#else
  return a < b ? a : b;
#endif
}
NARROWGAUGE_HD float larger(float a, float b) {
#ifdef __CUDA_ARCH__
  return fmaxf(a, b);
#else
  return a > b ? a : b;
#endif
}

// Correctly rounded square root of x in [kSmallestRoot, FLT_MAX]. The device code is the usual refinement of
// the hardware's estimate (Markstein 1990) without the branch for zero, denormals and infinity.
inline constexpr float kSmallestRoot = 0x1p-100f;
NARROWGAUGE_HD float square_root(float x) {
#ifdef __CUDA_ARCH__
  float estimate;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
  const float root = __fmul_rn(x, estimate);
  return __fmaf_rn(__fmaf_rn(-root, root, x), __fmul_rn(0.5f, estimate), root);
#else
  return std::sqrt(x);
#endif
}

// 1 / b, correctly rounded, for b whose reciprocal is a normal number: the device code is what __frcp_rn
// does there, without the branch for the other numbers.
NARROWGAUGE_HD float reciprocal(float b) {
#ifdef __CUDA_ARCH__
  float estimate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(b));
  return __fmaf_rn(estimate, __fmaf_rn(-b, estimate, 1.0f), estimate);
#else
  return 1.0f / b;
#endif
}

// a / b for b whose reciprocal is a normal number: correctly rounded as long as the quotient's error term is
// one too (|a| > 2^-100), else within one unit in the last place.
NARROWGAUGE_HD float divide(float a, float b) {
#ifdef __CUDA_ARCH__
  float estimate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(b));
  estimate = __fmaf_rn(estimate, __fmaf_rn(-b, estimate, 1.0f), estimate);
  float quotient = __fmul_rn(a, estimate);
  quotient = __fmaf_rn(__fmaf_rn(-b, quotient, a), estimate, quotient);
  return __fmaf_rn(__fmaf_rn(-b, quotient, a), estimate, quotient);
#else
  return a / b;
#endif
}

}  // namespace narrowgauge::cuda
