#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <string>

namespace narrowgauge::ops {

// The three matrix products of a linear layer without bias; rows x (rows, I), dy and y (rows, O),
// w (O, I). bf16 inputs are multiplied with fp32 accumulation. CUDA: lib/ops/gemm.h on the current stream.

// y = x w^T
void linear_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w);
// dx = dy w
void linear_input_grad(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& w);
// dw += dy^T x, accumulated by the product itself; dw has w's shape and either w's dtype or fp32.
void linear_weight_grad(const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x);

// Elements from row to row of a matrix whose rows start at whole 16 bytes.
constexpr int64_t padded_row(int64_t columns, int64_t element_bytes) {
  const int64_t lanes = 16 / element_bytes;
  return (columns + lanes - 1) / lanes * lanes;
}

struct LinearShape {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
  int64_t y_stride = 0;  // elements from row to row of y and dy, at least `out`
  at::ScalarType dtype = at::kBFloat16;
  at::ScalarType grad_dtype = at::kBFloat16;  // of dw
  bool operator==(const LinearShape&) const = default;
};

// The keys among ops::choices() of linear_forward, linear_input_grad and linear_weight_grad.
std::array<std::string, 3> linear_keys(const LinearShape& shape);

// What became of products that were to get an algorithm.
struct ProductTimings {
  int64_t in_force = 0;  // had a choice
  int64_t recalled = 0;  // the remembered choice came into force
  int64_t timed = 0;
  int64_t refused = 0;   // of the timed and left: had a choice that the library does not take here
  int64_t left = 0;      // no room to time them, or nothing to multiply: the first heuristic
  double first_us = 0;   // the first heuristic, summed over the others
  double chosen_us = 0;  // the chosen algorithm

  [[nodiscard]] int64_t products() const { return in_force + recalled + timed + left; }
  // Adds the other's counts, and its times as often as `uses` says.
  void add(const ProductTimings& other, double uses = 1);
};

// Gives each of the three products the fastest of the algorithms that the library lists and that sum in a
// fixed order, and stores it in ops::choices(). A product with a choice in force, or a remembered one, keeps
// that if the library takes it. The others are timed on random data in rotating buffers, of `byte_limit`
// bytes at most (half of the free memory at most), which are given back to the device afterwards. Waits for
// the device. CUDA only, outside any capture.
ProductTimings time_linear(const LinearShape& shape, at::Device device, int64_t byte_limit);

}  // namespace narrowgauge::ops
