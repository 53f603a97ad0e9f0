#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

// SwiGLU (Shazeer 2020) on the packed output of one GEMM: gate_up (rows, 2F) holds gate in its first F
// columns and up in the others; out (rows, F) = silu(gate) * up, fp32 inside, one rounding.
void swiglu_forward(const at::Tensor& out, const at::Tensor& gate_up);

// dgate_up (rows, 2F), may be gate_up itself; out, when defined, receives the recomputed product.
void swiglu_backward(const at::Tensor& dgate_up, const at::Tensor& out, const at::Tensor& dout,
                     const at::Tensor& gate_up);

}  // namespace narrowgauge::ops
