#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

namespace narrowgauge::test {

// Normal random tensors; the same seed gives the same numbers on every device.
class Random {
 public:
  Random(at::Device device, at::ScalarType dtype, uint64_t seed = 1)
      : device_(device), dtype_(dtype), generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}

  at::Tensor operator()(at::IntArrayRef size) {
    return at::randn(size, generator_, at::TensorOptions().dtype(at::kFloat)).to(device_, dtype_);
  }
  // (rows, cols) whose rows lie cols + gap elements apart.
  at::Tensor strided(int64_t rows, int64_t cols, int64_t gap) {
    return (*this)({rows, cols + gap}).narrow(1, 0, cols);
  }

 private:
  at::Device device_;
  at::ScalarType dtype_;
  at::Generator generator_;
};

}  // namespace narrowgauge::test
