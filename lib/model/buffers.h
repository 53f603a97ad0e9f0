#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace narrowgauge::model {

// Every temporary and every kept tensor of a segment comes from here: uninitialised memory of `like`'s device
// and, unless given, dtype.
inline at::Tensor take(at::IntArrayRef sizes, const at::Tensor& like, at::ScalarType dtype) {
  return at::empty(sizes, like.options().dtype(dtype).requires_grad(false));
}
inline at::Tensor take(at::IntArrayRef sizes, const at::Tensor& like) {
  return take(sizes, like, like.scalar_type());
}

}  // namespace narrowgauge::model
