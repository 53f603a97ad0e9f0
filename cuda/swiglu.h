#pragma once
// SwiGLU (Shazeer 2020) on the packed output of one matrix product: a row of gate_up holds `cols` gate
// values and then `cols` up values. silu(g) = g / (1 + exp(-g)); fp32 inside, one rounding.
#include <cstdint>

#include "cuda/flat_launch.h"
#include "cuda/stream.h"

namespace narrowgauge::cuda {

// out = silu(gate) * up
template <class T>
struct Swiglu {
  T* out;            // (rows, cols), dense
  const T* gate_up;  // (rows, 2 cols), dense
  int64_t rows;      // >= 0; 0 launches nothing
  int64_t cols;      // >= 1
};

// dgate = dout * up * s (1 + gate (1 - s)) with s = 1 / (1 + exp(-gate)); dup = dout * silu(gate).
template <class T>
struct SwigluBackward {
  T* dgate_up;       // (rows, 2 cols), dense; may be gate_up
  T* out;            // (rows, cols), dense: the product as Swiglu gives it; null: not written; may be dout
  const T* dout;     // (rows, cols), dense
  const T* gate_up;  // (rows, 2 cols), dense
  int64_t rows;      // >= 0; 0 launches nothing
  int64_t cols;      // >= 1
};

// Pure function of the card's limits. Vectorised: a thread takes 16 bytes of a row's gate; else one element.
constexpr FlatLaunch plan_swiglu(int64_t rows, int64_t cols, int element_bytes, bool vectorised,
                                 const DeviceLimits& limits) {
  return plan_flat(rows * cols * (vectorised ? element_bytes : 16) / 16, limits);
}

// Asynchronous on `stream`. T: float, bf16. Any size and alignment works; pointers on 16-byte boundaries with
// cols * sizeof(T) divisible by 16 are fast. Throw LaunchError (null pointer, size out of range) before the
// launch and CudaError after it.
template <class T>
void swiglu(const Swiglu<T>& args, const DeviceLimits& limits, Stream stream);
template <class T>
void swiglu_backward(const SwigluBackward<T>& args, const DeviceLimits& limits, Stream stream);

}  // namespace narrowgauge::cuda
