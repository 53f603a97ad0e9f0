#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

// out (tokens, H) = weight (V, H) rows named by tokens (int32). Ids are below V: the data loader checks.
void embedding_forward(const at::Tensor& out, const at::Tensor& weight, const at::Tensor& tokens);

// dweight (V, H, fp32) += the sum of dy (tokens, H) over equal ids, in fp32 and in a fixed order.
void embedding_backward(const at::Tensor& dweight, const at::Tensor& dy, const at::Tensor& tokens);

}  // namespace narrowgauge::ops
