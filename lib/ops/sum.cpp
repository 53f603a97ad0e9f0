#include "lib/ops/sum.h"

#include <array>

#include "cuda/sum.h"
#include "lib/ops/device.h"
#include "lib/ops/fma_clones.h"

namespace narrowgauge::ops {
namespace {

constexpr int kWarp = 32;

// What lane 0 of a warp has after the butterfly.
float butterfly(float* lanes) {
  for (int width = kWarp / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

NARROWGAUGE_FMA_CLONES void add_values(float* lanes, const float* x, int64_t count, bool squares) {
  for (int64_t i = 0; i < count; ++i) {
    float& lane = lanes[i % cuda::kSumThreads];
    lane = squares ? __builtin_fmaf(x[i], x[i], lane) : lane + x[i];
  }
}

void add_on_cpu(const cuda::SumInto& args) {
  std::array<float, cuda::kSumThreads> lanes{};
  add_values(lanes.data(), args.x, args.count, args.squares);
  std::array<float, kWarp> warps{};
  for (size_t warp = 0; warp < warps.size(); ++warp) warps[warp] = butterfly(lanes.data() + warp * kWarp);
  *args.out += butterfly(warps.data());
}

void add_checked(const at::Tensor& out, const at::Tensor& x, bool squares) {
  TORCH_CHECK(out.numel() == 1 && out.scalar_type() == at::kFloat, "sum_into: out must be one fp32 value");
  TORCH_CHECK(x.is_contiguous() && x.scalar_type() == at::kFloat && x.device() == out.device(),
              "sum_into: x must be contiguous fp32 on the device of out");
  const cuda::SumInto args{.out = out.mutable_data_ptr<float>(),
                           .x = x.const_data_ptr<float>(),
                           .count = x.numel(),
                           .squares = squares};
  if (args.count == 0) return;
  if (out.is_cuda()) {
    cuda::sum_into(args, current_stream(out));
  } else {
    add_on_cpu(args);
  }
}

}  // namespace

void sum_into(const at::Tensor& out, const at::Tensor& x) { add_checked(out, x, false); }
void sum_squares_into(const at::Tensor& out, const at::Tensor& x) { add_checked(out, x, true); }

}  // namespace narrowgauge::ops
