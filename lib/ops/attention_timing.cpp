#include "lib/ops/attention_timing.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_max.h>
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
constexpr double kBurstMs = 10;  // of the same kernel in a row: clocks are those of a card at work
constexpr int kMostCalls = 50;

class Bench {
 public:
  explicit Bench(const AttentionJob& job)
      : attention_{.shape = job.shape,
                   .kernel = {},
                   .deterministic = job.deterministic,
                   .documents = {},
                   .workspace_limit = job.workspace_limit},
        device_(job.device),
        data_(job.shape, job.device) {
    if (job.document_mask) attention_.documents.cu_seqlens = whole_sequences(job);
  }

  // Milliseconds of one forward and backward, of `calls` in a row.
  double run(AttentionKernel kernel, int calls) {
    attention_.kernel = kernel;
    const int64_t bytes = attention_scratch_bytes(attention_, device_);
    if (!scratch_.defined() || scratch_.numel() < bytes) {
      scratch_ = at::empty({bytes}, data_.qkv.options().dtype(at::kByte));
    }
    const double all = milliseconds_of(device_, [&] {
      for (int i = 0; i < calls; ++i) {
        attention_forward(data_.forward, data_.qkv, attention_, scratch_);
        attention_backward(data_.dqkv, data_.dout, data_.qkv, data_.forward, attention_, scratch_);
      }
    });
    return all / calls;
  }

 private:
  // One document a sequence, padded as batches are.
  static at::Tensor whole_sequences(const AttentionJob& job) {
    const AttentionShape& s = job.shape;
    const int64_t entries = usual_boundaries(s.batch, s.context);
    return at::arange(entries, at::TensorOptions(job.device).dtype(at::kInt))
        .clamp_max(s.batch)
        .mul(s.context);
  }

  Attention attention_;
  at::Device device_;
  AttentionData data_;
  at::Tensor scratch_;
};

std::vector<AttentionTime> medians(const std::vector<AttentionKernel>& kernels, Bench bench) {
  std::vector<std::vector<double>> times(kernels.size());
  std::vector<int> calls(kernels.size(), 1);
  for (int round = -kWarmUps; round < kRounds; ++round) {
    for (size_t i = 0; i < kernels.size(); ++i) {
      const double time = bench.run(kernels[i], calls[i]);
      if (round >= 0) times[i].push_back(time);
      calls[i] = static_cast<int>(std::clamp(kBurstMs / time, 1.0, double{kMostCalls}));
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

AttentionData::AttentionData(const AttentionShape& shape, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(at::kBFloat16);
  const int64_t tokens = shape.batch * shape.context;
  const int64_t width = shape.heads * shape.head_dim;
  qkv = at::randn({tokens, width + 2 * shape.kv_heads * shape.head_dim}, options);
  dout = at::randn({tokens, width}, options);
  dqkv = at::empty_like(qkv);
  forward = {.out = at::empty_like(dout),
             .lse = at::empty({tokens * shape.heads}, options.dtype(at::kFloat))};
}

double milliseconds_of(at::Device device, const std::function<void()>& launch) {
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  c10::Event start(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  start.record(stream);
  launch();
  end.record(stream);
  end.synchronize();
  return start.elapsedTime(end);
}

std::vector<AttentionTime> time_attention(const std::vector<AttentionKernel>& kernels,
                                          const AttentionJob& job) {
  const c10::DeviceGuard guard(job.device);
  std::vector<AttentionTime> times = medians(kernels, Bench(job));
  c10::getDeviceAllocator(job.device.type())->emptyCache();
  std::stable_sort(times.begin(), times.end(), [](const AttentionTime& a, const AttentionTime& b) {
    return a.milliseconds < b.milliseconds;
  });
  return times;
}

}  // namespace narrowgauge::ops
