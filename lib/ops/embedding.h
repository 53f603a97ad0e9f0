#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

// Tensors are contiguous, on one device; weight, out and dy bf16 or fp32, tokens (count) int32. Ids must lie
// in [0, V): the data loader checks. An id outside reads and adds nothing: its row of `out` is NaN. CUDA is
// asynchronous on the current stream. Wrong shapes or dtypes throw c10::Error.

// out (count, H) = the rows of weight (V, H) named by tokens.
void embedding_forward(const at::Tensor& out, const at::Tensor& weight, const at::Tensor& tokens);

// dweight (V, H, fp32) += the sum of dy (count, H) over equal ids, in fp32 and in an order that depends on
// the ids alone. `order` (count) int32 on the device is token_order (lib/ops/token_order.h) of the ids, which
// is not checked; undefined: on CUDA the ids are sorted here, which allocates. The CPU does not need it.
void embedding_backward(const at::Tensor& dweight, const at::Tensor& dy, const at::Tensor& tokens,
                        const at::Tensor& order = {});

}  // namespace narrowgauge::ops
