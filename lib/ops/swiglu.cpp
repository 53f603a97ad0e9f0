#include "lib/ops/swiglu.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <c10/core/GradMode.h>

#include "cuda/swiglu.h"
#include "lib/ops/device.h"
#include "lib/ops/dispatch.h"

namespace narrowgauge::ops {
namespace {

void check_packed(const at::Tensor& packed, const at::Tensor& plain) {
  TORCH_CHECK(plain.dim() == 2 && plain.is_contiguous(), "swiglu: expected a contiguous (rows, F)");
  TORCH_CHECK(packed.dim() == 2 && packed.is_contiguous() && packed.size(0) == plain.size(0) &&
                  packed.size(1) == 2 * plain.size(1),
              "swiglu: expected a contiguous (rows, 2F)");
  TORCH_CHECK(packed.scalar_type() == plain.scalar_type() && packed.device() == plain.device(),
              "swiglu: tensors of different dtypes or devices");
}

at::Tensor half(const at::Tensor& packed, int64_t index) {
  const int64_t cols = packed.size(1) / 2;
  return packed.narrow(1, index * cols, cols);
}

void forward_on_cpu(const at::Tensor& out, const at::Tensor& gate_up) {
  const c10::NoGradGuard no_grad;
  at::Tensor target = out;
  if (out.scalar_type() == at::kFloat) {
    at::silu_out(target, half(gate_up, 0));
    target.mul_(half(gate_up, 1));
  } else {
    at::mul_out(target, at::silu(half(gate_up, 0).to(at::kFloat)), half(gate_up, 1));
  }
}

void backward_on_cpu(const at::Tensor& dgate_up, const at::Tensor& out, const at::Tensor& dout,
                     const at::Tensor& gate_up) {
  const c10::NoGradGuard no_grad;
  const at::Tensor gate = half(gate_up, 0).to(at::kFloat);
  const at::Tensor up = half(gate_up, 1).to(at::kFloat);
  const at::Tensor silu = at::silu(gate);
  const at::Tensor dsilu = at::mul(dout, up);
  const at::Tensor product = out.defined() ? at::mul(silu, up) : at::Tensor();
  at::Tensor dup = half(dgate_up, 1);
  at::mul_out(dup, dout, silu);  // from here on gate_up and dout may be overwritten, half by half
  half(dgate_up, 0).copy_(at::silu_backward(dsilu, gate));
  if (out.defined()) out.copy_(product);
}

}  // namespace

void swiglu_forward(const at::Tensor& out, const at::Tensor& gate_up) {
  check_packed(gate_up, out);
  if (!out.is_cuda()) return forward_on_cpu(out, gate_up);
  for_dtype(out.scalar_type(), [&]<class T>() {
    cuda::swiglu<T>(
        {.out = written<T>(out), .gate_up = read<T>(gate_up), .rows = out.size(0), .cols = out.size(1)},
        limits_of(out), current_stream(out));
  });
}

void swiglu_backward(const at::Tensor& dgate_up, const at::Tensor& out, const at::Tensor& dout,
                     const at::Tensor& gate_up) {
  check_packed(gate_up, dout);
  check_packed(dgate_up, dout);
  if (out.defined()) check_packed(gate_up, out);
  if (!dout.is_cuda()) return backward_on_cpu(dgate_up, out, dout, gate_up);
  for_dtype(dout.scalar_type(), [&]<class T>() {
    cuda::swiglu_backward<T>({.dgate_up = written<T>(dgate_up),
                              .out = written<T>(out),
                              .dout = read<T>(dout),
                              .gate_up = read<T>(gate_up),
                              .rows = dout.size(0),
                              .cols = dout.size(1)},
                             limits_of(dout), current_stream(dout));
  });
}

}  // namespace narrowgauge::ops
