#include "tests/support/reference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/real.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/autograd.h>

namespace narrowgauge::test::reference {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * (x.square().mean(-1, /*keepdim=*/true) + eps).rsqrt() * weight;
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const int64_t cols = gate_up.size(1) / 2;
  return at::silu(gate_up.narrow(1, 0, cols)) * gate_up.narrow(1, cols, cols);
}

at::Tensor rope(const at::Tensor& x, const at::Tensor& positions, double theta, bool inverse) {
  const int64_t dim = x.size(2);
  const at::Tensor exponent =
      at::arange(0, dim, 2, x.options().dtype(at::kDouble)) / -static_cast<double>(dim);
  const at::Tensor at_position = positions.to(at::kDouble) * (inverse ? -1.0 : 1.0);
  const at::Tensor angle = at::outer(at_position, at::pow(theta, exponent)).unsqueeze(1);
  const at::Tensor low = x.narrow(2, 0, dim / 2);
  const at::Tensor high = x.narrow(2, dim / 2, dim / 2);
  if (x.scalar_type() == at::kDouble) {
    const at::Tensor turned = at::complex(low, high) * at::polar(angle.new_ones({}).expand_as(angle), angle);
    return at::cat({at::real(turned), at::imag(turned)}, 2);
  }
  const at::Tensor cos = angle.cos().to(x.scalar_type());
  const at::Tensor sin = angle.sin().to(x.scalar_type());
  return at::cat({low * cos - high * sin, high * cos + low * sin}, 2);
}

at::Tensor leaf(const at::Tensor& x, at::ScalarType type) {
  return x.detach().to(type).clone().requires_grad_(true);
}

std::vector<at::Tensor> gradients(const at::Tensor& y, const at::Tensor& dy,
                                  const std::vector<at::Tensor>& inputs) {
  return torch::autograd::grad({y}, inputs, {dy.to(y.scalar_type())});
}

}  // namespace narrowgauge::test::reference
