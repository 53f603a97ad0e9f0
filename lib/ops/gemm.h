#pragma once
// Matrix products on a GPU through cuBLASLt, for the other operations of this folder.
#include <ATen/core/Tensor.h>

#include <array>
#include <compare>
#include <string>

#include "lib/ops/linear.h"

namespace narrowgauge::ops {

// Row-major C (m, n) = op(A) op(B) + beta C, all that the choice of an algorithm may depend on.
struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  // A lies as (k, m)
  bool transpose_b = false;  // B lies as (n, k)
  int64_t lda = 0;           // elements from row to row
  int64_t ldb = 0;
  int64_t ldc = 0;
  at::ScalarType in = at::kBFloat16;   // of A and B: bf16 or fp32
  at::ScalarType out = at::kBFloat16;  // of C: bf16 or fp32; fp32 where `in` is
  bool accumulate = false;             // beta is 1, else 0
  int64_t alignment = 16;              // bytes that divide every address, 16 at most
  auto operator<=>(const GemmShape&) const = default;
};

// The key among ops::choices().
std::string gemm_key(const GemmShape& shape);

// Those of linear_forward, linear_input_grad and linear_weight_grad.
std::array<GemmShape, 3> linear_products(const LinearShape& shape);

// The product on C's device and current stream, summed in fp32 (never TF32). Two-dimensional tensors whose
// last dimension is contiguous and whose rows do not overlap; C overlaps neither A nor B. beta = 0 overwrites
// whatever C holds; with k = 0 that gives zeros. The algorithm is the choice in force for the shape, else the
// library's first heuristic; either way sums have a fixed order and the same call gives the same bits. Waits
// for nothing; allocates only in the first call of a process and device (the workspace, which all products
// share: one stream at a time), and that one must not be captured (std::logic_error).
void gemm(const at::Tensor& c, const at::Tensor& a, bool transpose_a, const at::Tensor& b, bool transpose_b,
          bool accumulate);

// Chooses the algorithm of one shape; see time_linear.
ProductTimings time_gemm(const GemmShape& shape, at::Device device, int64_t byte_limit);

// Shapes that ran since ops::choices() last changed without a choice in force.
int64_t unchosen_gemms();

}  // namespace narrowgauge::ops
