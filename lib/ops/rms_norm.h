#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::ops {

// Root mean square normalisation (Zhang and Sennrich 2019): y = x * rstd * weight with
// rstd = 1 / sqrt(mean(x^2) + eps) over the last dimension; fp32 inside, one rounding at the end.
// Every function writes into tensors that the caller owns; dtypes are bf16 or fp32, alike for all but
// rstd and dweight, which are fp32. CUDA is asynchronous on the current stream. Wrong shapes or dtypes
// throw c10::Error.

// x, y (rows, H), last dimension contiguous, rows may be strided; rstd (rows); weight (H).
void rms_norm_forward(const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x,
                      const at::Tensor& weight, double eps);

// sum = x + residual (rounded to the dtype), y = norm of the rounded sum. `sum` may be `residual`.
void add_rms_norm_forward(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& rstd,
                          const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                          double eps);

// dx = gradient through the norm + dresidual (undefined tensor: nothing added); dweight (H, fp32) is
// accumulated (+=). dx may be dy or dresidual. normed: gets what forward wrote into y, to the bit; undefined:
// not wanted. scratch: for CUDA, fp32, contiguous, at least cuda::rms_norm_backward_scratch elements;
// undefined: allocated here.
void rms_norm_backward(const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& dresidual, const at::Tensor& normed = {},
                       const at::Tensor& scratch = {});

// The norm of every head of a packed row, in place or not: packed tensors are (tokens, W) and heads
// [first_head, first_head + heads) of head_dim = weight.size(0) elements are normalised; the rest of y
// is not touched. rstd (tokens, heads).
void head_norm_forward(const at::Tensor& y_packed, const at::Tensor& rstd, const at::Tensor& x_packed,
                       int64_t first_head, int64_t heads, const at::Tensor& weight, double eps);

// dx may be dy (in place). dweight (head_dim, fp32) is accumulated. scratch: as above, for tokens * heads
// rows of head_dim.
void head_norm_backward(const at::Tensor& dx_packed, const at::Tensor& dweight, const at::Tensor& dy_packed,
                        const at::Tensor& x_packed, int64_t first_head, int64_t heads,
                        const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& scratch = {});

}  // namespace narrowgauge::ops
