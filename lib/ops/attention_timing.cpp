#include "lib/ops/attention_timing.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace narrowgauge::ops {
namespace {

constexpr int kWarmUps = 3;
constexpr int kRounds = 7;

class Bench {
 public:
  Bench(const AttentionShape& shape, bool deterministic, at::Device device)
      : attention_{.shape = shape, .kernel = {}, .deterministic = deterministic},
        device_(device),
        stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)) {
    const auto options = at::TensorOptions(device).dtype(at::kBFloat16);
    const int64_t tokens = shape.batch * shape.context;
    const int64_t width = shape.heads * shape.head_dim;
    qkv_ = at::randn({tokens, width + 2 * shape.kv_heads * shape.head_dim}, options);
    dqkv_ = at::empty_like(qkv_);
    dout_ = at::randn({tokens, width}, options);
    forward_ = {.out = at::empty_like(dout_),
                .lse = at::empty({tokens * shape.heads}, options.dtype(at::kFloat))};
  }

  // Milliseconds of one forward and backward.
  double run(AttentionKernel kernel) {
    attention_.kernel = kernel;
    const int64_t bytes = attention_scratch_bytes(attention_, device_);
    if (!scratch_.defined() || scratch_.numel() < bytes) {
      scratch_ = at::empty({bytes}, qkv_.options().dtype(at::kByte));
    }
    c10::Event start(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    start.record(stream_);
    attention_forward(forward_, qkv_, attention_, scratch_);
    attention_backward(dqkv_, dout_, qkv_, forward_, attention_, scratch_);
    end.record(stream_);
    end.synchronize();
    return start.elapsedTime(end);
  }

 private:
  Attention attention_;
  at::Device device_;
  c10::Stream stream_;
  at::Tensor qkv_;
  at::Tensor dqkv_;
  at::Tensor dout_;
  at::Tensor scratch_;
  AttentionResult forward_;
};

std::vector<AttentionTime> medians(const std::vector<AttentionKernel>& kernels, Bench bench) {
  std::vector<std::vector<double>> times(kernels.size());
  for (int round = -kWarmUps; round < kRounds; ++round) {
    for (size_t i = 0; i < kernels.size(); ++i) {
      const double time = bench.run(kernels[i]);
      if (round >= 0) times[i].push_back(time);
    }
  }
  std::vector<AttentionTime> result;
  for (size_t i = 0; i < kernels.size(); ++i) {
    std::nth_element(times[i].begin(), times[i].begin() + kRounds / 2, times[i].end());
    result.push_back({.kernel = kernels[i], .milliseconds = times[i][kRounds / 2]});
  }
  return result;
}

}  // namespace

std::vector<AttentionTime> time_attention(const std::vector<AttentionKernel>& kernels,
                                          const AttentionShape& shape, bool deterministic,
                                          at::Device device) {
  const c10::DeviceGuard guard(device);
  std::vector<AttentionTime> times = medians(kernels, Bench(shape, deterministic, device));
  c10::getDeviceAllocator(device.type())->emptyCache();
  std::stable_sort(times.begin(), times.end(), [](const AttentionTime& a, const AttentionTime& b) {
    return a.milliseconds < b.milliseconds;
  });
  return times;
}

}  // namespace narrowgauge::ops
