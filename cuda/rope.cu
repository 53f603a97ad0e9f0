#include "cuda/launch.cuh"
#include "cuda/rope.h"
#include "cuda/vec.cuh"

namespace narrowgauge::cuda {
namespace {

template <int V>
__device__ __forceinline__ void load_table(float (&out)[V], const float* p) {
  if constexpr (V == 1) {
    out[0] = *p;
  } else {
#pragma unroll
    for (int k = 0; k < V; k += 4) {
      const Vec<float> x = load_vec(p + k);
#pragma unroll
      for (int j = 0; j < 4; ++j) out[k + j] = x.v[j];
    }
  }
}

// Item = (token, group, column vector). The group's heads are group, group + groups, ...: neighbouring
// threads then read neighbouring memory.
template <class T, int V>
__global__ void __launch_bounds__(256) rope_kernel(Rope<T> a) {
  wait_for_inputs();
  constexpr int kHeads = kRopeHeadsPerThread;
  const int64_t half = a.head_dim / 2;
  const int64_t columns = half / V;
  const int64_t groups = ceil_div<int64_t>(a.heads, kHeads);
  const int64_t items = a.tokens * groups * columns;
  for (int64_t i = flat_index(); i < items; i += flat_step()) {
    const int64_t rest = i / columns;
    const int64_t column = (i - rest * columns) * V;
    const int64_t token = rest / groups;
    const int64_t group = rest - token * groups;
    const int64_t position = a.positions ? a.positions[token] : token % a.context;
    T* row = a.qkv + token * a.row_stride + column;
    Vec<T, V> low[kHeads];
    Vec<T, V> high[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const int64_t head = group + h * groups;
      if (head < a.heads) {
        low[h] = load_vec<T, V>(row + head * a.head_dim);
        high[h] = load_vec<T, V>(row + head * a.head_dim + half);
      }
    }
    float cos[V];
    float sin[V];
    load_table(cos, a.cos + position * half + column);
    load_table(sin, a.sin + position * half + column);
    if (a.inverse) {
#pragma unroll
      for (int k = 0; k < V; ++k) sin[k] = -sin[k];
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const int64_t head = group + h * groups;
      if (head < a.heads) {
        float p[V];
        float q[V];
        float x[V];
        float y[V];
        widen(p, low[h]);
        widen(q, high[h]);
#pragma unroll
        for (int k = 0; k < V; ++k) {
          x[k] = p[k] * cos[k] - q[k] * sin[k];
          y[k] = q[k] * cos[k] + p[k] * sin[k];
        }
        store_vec(row + head * a.head_dim, round_vec<T>(x));
        store_vec(row + head * a.head_dim + half, round_vec<T>(y));
      }
    }
  }
}

}  // namespace

template <class T>
void rope(const Rope<T>& args, const DeviceLimits& limits, Stream stream) {
  require(args.tokens >= 0 && args.heads >= 0, "rope: a size is negative");
  require(args.head_dim >= 2 && args.head_dim % 2 == 0, "rope: head_dim is not a positive even number");
  if (args.tokens == 0 || args.heads == 0) return;
  require(args.row_stride >= args.heads * args.head_dim, "rope: row_stride is below heads * head_dim");
  require(args.qkv && args.cos && args.sin, "rope: null pointer");
  require(args.positions || args.context >= 1, "rope: context is below 1");
  const bool vectorised = args.head_dim / 2 % kVec<T> == 0 && args.row_stride % kVec<T> == 0 &&
                          aligned16(args.qkv) && aligned16(args.cos) && aligned16(args.sin);
  const FlatLaunch launch = plan_rope(args.tokens, args.heads, args.head_dim, sizeof(T), vectorised, limits);
  const auto kernel = vectorised ? rope_kernel<T, kVec<T>> : rope_kernel<T, 1>;
  launch_kernel("rope", kernel, launch.blocks, launch.threads, 0, stream, args);
}

template void rope(const Rope<float>&, const DeviceLimits&, Stream);
template void rope(const Rope<bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
