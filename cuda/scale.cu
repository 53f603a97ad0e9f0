#include "cuda/launch.cuh"
#include "cuda/scale.h"
#include "cuda/vec.cuh"

namespace narrowgauge::cuda {
namespace {

// `vectors` groups of kVec<T> elements go by 16-byte accesses, what is left over one by one.
template <class T>
__global__ void scale_kernel(Scale<T> a, int64_t vectors) {
  wait_for_inputs();
  constexpr int V = kVec<T>;
  for (int64_t i = flat_index(); i < vectors; i += flat_step()) {
    float y[V];
    widen(y, load_vec(a.x + i * V));
#pragma unroll
    for (int k = 0; k < V; ++k) y[k] *= a.factor;
    store_vec(a.y + i * V, round_vec<T>(y));
  }
  for (int64_t i = vectors * V + flat_index(); i < a.count; i += flat_step()) {
    a.y[i] = from_float<T>(a.factor * to_float(a.x[i]));
  }
}

}  // namespace

template <class T>
void scale(const Scale<T>& args, const DeviceLimits& limits, Stream stream) {
  require(args.count >= 0, "scale: count is negative");
  if (args.count == 0) return;
  require(args.y && args.x, "scale: null pointer");
  const bool vectorised = aligned16(args.y) && aligned16(args.x);
  const FlatLaunch launch = plan_scale(args.count, sizeof(T), limits);
  launch_kernel("scale", scale_kernel<T>, launch.blocks, launch.threads, 0, stream, args,
                vectorised ? args.count / kVec<T> : 0);
}

template void scale(const Scale<float>&, const DeviceLimits&, Stream);
template void scale(const Scale<bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
