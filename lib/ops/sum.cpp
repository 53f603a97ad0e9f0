#include "lib/ops/sum.h"

#include <algorithm>
#include <array>
#include <span>

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

cuda::SumInto checked(const Sum& sum, const at::Device& device) {
  TORCH_CHECK(sum.out.numel() == 1 && sum.out.scalar_type() == at::kFloat && sum.out.device() == device,
              "sum_into: out must be one fp32 value, on one device with the others");
  TORCH_CHECK(sum.x.is_contiguous() && sum.x.scalar_type() == at::kFloat && sum.x.device() == device,
              "sum_into: x must be contiguous fp32 on the device of out");
  return {.out = sum.out.mutable_data_ptr<float>(),
          .x = sum.x.const_data_ptr<float>(),
          .count = sum.x.numel(),
          .squares = sum.squares};
}

}  // namespace

void sum_into(std::initializer_list<Sum> sums) {
  if (sums.size() == 0) return;
  TORCH_CHECK(sums.size() <= size_t{cuda::kSumsAtOnce}, "sum_into: too many sums");
  const at::Tensor& first = sums.begin()->out;
  std::array<cuda::SumInto, cuda::kSumsAtOnce> arguments{};
  std::ranges::transform(sums, arguments.begin(),
                         [&](const Sum& sum) { return checked(sum, first.device()); });
  const std::span used(arguments.data(), sums.size());
  if (first.is_cuda()) {
    cuda::sum_into(used, current_stream(first));
  } else {
    std::ranges::for_each(used, add_on_cpu);
  }
}

}  // namespace narrowgauge::ops
