#pragma once
#include <ATen/core/Tensor.h>

// What holds for the norms on every device; tests call these for the CPU and, under two cards' limits, the
// GPU.
namespace narrowgauge::test {

// Rows lie cols + gap elements apart.
struct NormCase {
  int64_t rows;
  int64_t cols;
  int64_t gap = 0;
};
void check_rms_norm(at::Device device, at::ScalarType dtype, const NormCase& c);

// Zero, constant, huge, NaN and Inf rows.
void check_rms_norm_special_rows(at::Device device, at::ScalarType dtype, int64_t cols);

// Heads [first, first + heads) of packed rows with `total` heads, in place and not.
void check_head_norm(at::Device device, at::ScalarType dtype, int64_t tokens, int64_t head_dim, int64_t first,
                     int64_t heads, int64_t total);

// Gradients that are broadcast over rows (stride 0), and wrong arguments.
void check_rms_norm_arguments(at::Device device);

}  // namespace narrowgauge::test
