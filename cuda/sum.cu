#include "cuda/sum.h"

#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"

namespace narrowgauge::cuda {
namespace {

struct Sums {
  SumInto of[kSumsAtOnce];
};

// A block for each sum.
__global__ void __launch_bounds__(kSumThreads) sum_kernel(const __grid_constant__ Sums sums) {
  wait_for_inputs();
  const SumInto& a = sums.of[blockIdx.x];
  __shared__ float shared[32];
  float sum = 0.0f;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < a.count; i += kSumThreads) {
    const float x = a.x[i];
    sum = a.squares ? __fmaf_rn(x, x, sum) : sum + x;
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) *a.out += sum;
}

}  // namespace

void sum_into(std::span<const SumInto> sums, Stream stream) {
  require(sums.size() <= size_t{kSumsAtOnce}, "sum_into: too many sums");
  Sums arguments{};
  unsigned blocks = 0;
  for (const SumInto& one : sums) {
    require(one.count >= 0, "sum_into: negative count");
    if (one.count == 0) continue;
    require(one.out && one.x, "sum_into: null pointer");
    arguments.of[blocks++] = one;
  }
  if (blocks == 0) return;
  launch_kernel("sum_into", sum_kernel, blocks, kSumThreads, 0, stream, arguments);
}

}  // namespace narrowgauge::cuda
