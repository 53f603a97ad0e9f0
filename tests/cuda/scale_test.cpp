// The living template of a kernel's GPU test: every size, alignment and dtype, under this card's limits and
// under an RTX 5080's, against fp64; two runs give the same bits.
#include "cuda/scale.h"

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/catch.h"

namespace narrowgauge::cuda {
namespace {

// `count` elements of T on the device, `shift` elements past an aligned address.
template <class T>
class Buffer {
 public:
  Buffer(const std::vector<T>& values, size_t shift) : count_(values.size()), shift_(shift) {
    REQUIRE(cudaMalloc(&base_, (count_ + shift + 1) * sizeof(T)) == cudaSuccess);
    REQUIRE(cudaMemcpy(data(), values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { (void)cudaFree(base_); }

  T* data() { return static_cast<T*>(base_) + shift_; }
  std::vector<T> read() {
    std::vector<T> values(count_);
    REQUIRE(cudaMemcpy(values.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
  }

 private:
  void* base_ = nullptr;
  size_t count_;
  size_t shift_;
};

template <class T>
void check_scale(int64_t count, size_t shift, const DeviceLimits& limits) {
  CAPTURE(sizeof(T), count, shift, limits.sm_count);
  constexpr float kFactor = -1.7f;
  std::vector<T> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(std::sin(static_cast<float>(i)) * 3.0f);
  Buffer<T> in(x, shift);
  Buffer<T> out(x, shift);
  scale<T>({.y = out.data(), .x = in.data(), .count = count, .factor = kFactor}, limits, nullptr);
  const std::vector<T> y = out.read();
  const double half_ulp = sizeof(T) == 2 ? 0x1p-8 : 0x1p-24;
  size_t wrong = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double expected = static_cast<double>(kFactor) * static_cast<double>(static_cast<float>(x[i]));
    wrong += std::abs(static_cast<double>(static_cast<float>(y[i])) - expected) >
             half_ulp * std::abs(expected) * 1.001;
  }
  CHECK(wrong == 0);
  scale<T>({.y = in.data(), .x = in.data(), .count = count, .factor = kFactor}, limits, nullptr);  // in place
  const std::vector<T> again = in.read();
  if (count > 0) CHECK(std::memcmp(again.data(), y.data(), y.size() * sizeof(T)) == 0);
}

TEST_CASE("scale", "[sanitize]") {
  for (const DeviceLimits& limits : {device_limits(0), kRtx5080Limits}) {
    for (const int64_t count : {0, 1, 7, 8, 9, 255, 2048, 1'000'003}) {
      for (const size_t shift : {0, 1}) {
        check_scale<float>(count, shift, limits);
        check_scale<bf16>(count, shift, limits);
      }
    }
  }
}

}  // namespace
}  // namespace narrowgauge::cuda
