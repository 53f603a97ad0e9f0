#pragma once
#include <ATen/core/Tensor.h>

namespace narrowgauge::test {

// A packed row holds `heads` rotated heads, `values` others and `gap` more elements before the next row.
struct RopeCase {
  int64_t tokens;
  int64_t heads;
  int64_t values;
  int64_t head_dim;
  int64_t gap = 0;
  double theta = 1e4;
  int64_t context = 64;
};
void check_rope(at::Device device, at::ScalarType dtype, const RopeCase& c);

// Norms are kept, inverse undoes forward, scores depend on distances alone, positions up to 32767 are exact.
void check_rope_properties(at::Device device);

}  // namespace narrowgauge::test
