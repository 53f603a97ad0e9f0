#pragma once
// From tensors to the typed pointers that kernels take.
#include <ATen/core/Tensor.h>

#include "cuda/stream.h"

namespace narrowgauge::ops {

// Calls f.operator()<T>() with the kernels' name of `type`: float or cuda::bf16; others throw c10::Error.
template <class F>
void for_dtype(at::ScalarType type, F&& f) {
  if (type == at::kFloat) {
    f.template operator()<float>();
  } else {
    TORCH_CHECK(type == at::kBFloat16, "expected bf16 or fp32, got ", type);
    f.template operator()<cuda::bf16>();
  }
}

// Null for an undefined tensor.
template <class T>
T* written(const at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.mutable_data_ptr()) : nullptr;
}
template <class T>
const T* read(const at::Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.const_data_ptr()) : nullptr;
}

// Elements from one index of the first dimension to the next; 0 for an undefined tensor. A single row has no
// distance of its own: then its size.
inline int64_t row_stride(const at::Tensor& t) {
  if (!t.defined()) return 0;
  return t.size(0) == 1 ? t.numel() : t.stride(0);
}

}  // namespace narrowgauge::ops
