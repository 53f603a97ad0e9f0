#include "cuda/sum.h"

#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"

namespace narrowgauge::cuda {
namespace {

__global__ void __launch_bounds__(kSumThreads) sum_kernel(const SumInto a) {
  wait_for_inputs();
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

void sum_into(const SumInto& args, Stream stream) {
  require(args.count >= 0, "sum_into: negative count");
  if (args.count == 0) return;
  require(args.out && args.x, "sum_into: null pointer");
  launch_kernel("sum_into", sum_kernel, 1, kSumThreads, 0, stream, args);
}

}  // namespace narrowgauge::cuda
