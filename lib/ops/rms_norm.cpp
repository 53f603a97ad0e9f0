#include "lib/ops/rms_norm.h"

#include "cuda/rms_norm.h"

#include <ATen/ops/empty.h>

#include "lib/ops/device.h"
#include "lib/ops/dispatch.h"
#include "lib/ops/rms_norm_cpu.h"

namespace narrowgauge::ops {
namespace {

void check_matrix(const at::Tensor& t, const at::Tensor& like) {
  TORCH_CHECK(t.dim() == 2 && t.sizes() == like.sizes(), "rms_norm: expected a matrix of size ", like.sizes(),
              ", got ", t.sizes());
  TORCH_CHECK(t.size(1) <= 1 || t.stride(1) == 1, "rms_norm: the last dimension must be contiguous");
  TORCH_CHECK(t.scalar_type() == like.scalar_type() && t.device() == like.device(),
              "rms_norm: tensors of different dtypes or devices");
}

void check_vector(const at::Tensor& t, int64_t size, at::ScalarType type, const at::Tensor& like,
                  const char* name) {
  TORCH_CHECK(
      t.is_contiguous() && t.numel() == size && t.scalar_type() == type && t.device() == like.device(),
      "rms_norm: ", name, " must be contiguous, ", type, ", of ", size, " elements on ", like.device());
}

// What one call normalises: columns [first, first + group * cols) of a matrix, `cols` at a time.
struct Rows {
  int64_t first;
  int64_t group;
  int64_t cols;
};

Rows whole(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 2, "rms_norm: x must be a matrix");
  return {.first = 0, .group = 1, .cols = x.size(1)};
}

Rows heads_of(const at::Tensor& packed, int64_t first_head, int64_t heads, const at::Tensor& weight) {
  const int64_t cols = weight.numel();
  TORCH_CHECK(first_head >= 0 && heads >= 1 && (first_head + heads) * cols <= packed.size(1),
              "head_norm: heads [", first_head, ", ", first_head + heads, ") of ", cols,
              " do not fit a row of ", packed.size(1));
  return {.first = first_head * cols, .group = heads, .cols = cols};
}

// A checked matrix as (n, group, cols); an undefined one stays undefined.
at::Tensor rows_of(const at::Tensor& t, const at::Tensor& like, const Rows& rows) {
  if (!t.defined()) return t;
  check_matrix(t, like);
  return t.narrow(1, rows.first, rows.group * rows.cols).unflatten(1, {rows.group, rows.cols});
}

void forward(const at::Tensor& y_all, const at::Tensor& rstd, const at::Tensor& sum_all,
             const at::Tensor& x_all, const at::Tensor& residual_all, const at::Tensor& weight,
             const Rows& rows, double eps) {
  const at::Tensor x = rows_of(x_all, x_all, rows);
  const at::Tensor y = rows_of(y_all, x_all, rows);
  const at::Tensor sum = rows_of(sum_all, x_all, rows);
  const at::Tensor residual = rows_of(residual_all, x_all, rows);
  const int64_t count = x.size(0) * rows.group;
  check_vector(weight, rows.cols, x.scalar_type(), x, "weight");
  check_vector(rstd, count, at::kFloat, x, "rstd");
  if (!x.is_cuda()) {
    return cpu::rms_norm(y, rstd.view({x.size(0), rows.group, 1}), sum, x, residual, weight, eps);
  }
  for_dtype(x.scalar_type(), [&]<class T>() {
    cuda::rms_norm<T>({.y = written<T>(y),
                       .rstd = written<float>(rstd),
                       .sum = written<T>(sum),
                       .x = read<T>(x),
                       .residual = read<T>(residual),
                       .weight = read<T>(weight),
                       .rows = count,
                       .cols = rows.cols,
                       .group = rows.group,
                       .y_stride = row_stride(y),
                       .sum_stride = row_stride(sum),
                       .x_stride = row_stride(x),
                       .residual_stride = row_stride(residual),
                       .eps = static_cast<float>(eps)},
                      limits_of(x), current_stream(x));
  });
}

void backward(const at::Tensor& dx_all, const at::Tensor& dweight, const at::Tensor& dy_all,
              const at::Tensor& x_all, const at::Tensor& weight, const at::Tensor& rstd,
              const at::Tensor& dresidual_all, const at::Tensor& normed_all, const at::Tensor& given_scratch,
              const Rows& rows) {
  const at::Tensor x = rows_of(x_all, x_all, rows);
  const at::Tensor normed = rows_of(normed_all, x_all, rows);
  const at::Tensor dx = rows_of(dx_all, x_all, rows);
  const at::Tensor dy = rows_of(dy_all, x_all, rows);
  const at::Tensor dresidual = rows_of(dresidual_all, x_all, rows);
  const int64_t count = x.size(0) * rows.group;
  check_vector(weight, rows.cols, x.scalar_type(), x, "weight");
  check_vector(dweight, rows.cols, at::kFloat, x, "dweight");
  check_vector(rstd, count, at::kFloat, x, "rstd");
  if (!x.is_cuda()) {
    return cpu::rms_norm_backward(dx, dweight, dy, x, weight, rstd.view({x.size(0), rows.group, 1}),
                                  dresidual, normed);
  }
  const cuda::DeviceLimits limits = limits_of(x);
  const int64_t floats =
      cuda::rms_norm_backward_scratch(count, rows.cols, static_cast<int>(x.element_size()), limits);
  const at::Tensor scratch = given_scratch.defined() ? given_scratch : at::empty(floats, dweight.options());
  TORCH_CHECK(scratch.is_contiguous() && scratch.numel() >= floats && scratch.scalar_type() == at::kFloat,
              "rms_norm: scratch must be contiguous, fp32, of ", floats, " elements");
  for_dtype(x.scalar_type(), [&]<class T>() {
    cuda::rms_norm_backward<T>({.dx = written<T>(dx),
                                .y = written<T>(normed),
                                .dweight = written<float>(dweight),
                                .scratch = written<float>(scratch),
                                .dy = read<T>(dy),
                                .x = read<T>(x),
                                .dresidual = read<T>(dresidual),
                                .weight = read<T>(weight),
                                .rstd = read<float>(rstd),
                                .rows = count,
                                .cols = rows.cols,
                                .group = rows.group,
                                .dx_stride = row_stride(dx),
                                .y_stride = row_stride(normed),
                                .dy_stride = row_stride(dy),
                                .x_stride = row_stride(x),
                                .dresidual_stride = row_stride(dresidual)},
                               limits, current_stream(x));
  });
}

}  // namespace

void rms_norm_forward(const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x,
                      const at::Tensor& weight, double eps) {
  forward(y, rstd, {}, x, {}, weight, whole(x), eps);
}

void add_rms_norm_forward(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& rstd,
                          const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                          double eps) {
  TORCH_CHECK(sum.defined() && residual.defined(), "add_rms_norm: sum and residual must be defined");
  forward(y, rstd, sum, x, residual, weight, whole(x), eps);
}

void rms_norm_backward(const at::Tensor& dx, const at::Tensor& dweight, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& dresidual, const at::Tensor& normed, const at::Tensor& scratch) {
  backward(dx, dweight, dy, x, weight, rstd, dresidual, normed, scratch, whole(x));
}

void head_norm_forward(const at::Tensor& y_packed, const at::Tensor& rstd, const at::Tensor& x_packed,
                       int64_t first_head, int64_t heads, const at::Tensor& weight, double eps) {
  forward(y_packed, rstd, {}, x_packed, {}, weight, heads_of(x_packed, first_head, heads, weight), eps);
}

void head_norm_backward(const at::Tensor& dx_packed, const at::Tensor& dweight, const at::Tensor& dy_packed,
                        const at::Tensor& x_packed, int64_t first_head, int64_t heads,
                        const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& scratch) {
  backward(dx_packed, dweight, dy_packed, x_packed, weight, rstd, {}, {}, scratch,
           heads_of(x_packed, first_head, heads, weight));
}

}  // namespace narrowgauge::ops
