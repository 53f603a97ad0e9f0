#include "cuda/launch.cuh"
#include "cuda/rope.h"
#include "cuda/vec.cuh"

namespace narrowgauge::cuda {
namespace {

constexpr int kHeadsInFlight = 4;  // loads of a lane before its first store

__device__ __forceinline__ void load_table(float (&out)[8], const float* p) {
  const Vec<float> low = load_vec(p);
  const Vec<float> high = load_vec(p + 4);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    out[k] = low.v[k];
    out[k + 4] = high.v[k];
  }
}
__device__ __forceinline__ void load_table(float (&out)[4], const float* p) {
  const Vec<float> x = load_vec(p);
#pragma unroll
  for (int k = 0; k < 4; ++k) out[k] = x.v[k];
}

// What lane `from` of the warp holds.
template <class T>
__device__ __forceinline__ Vec<T> exchange(const Vec<T>& x, int from) {
  Vec<T> out;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    reinterpret_cast<unsigned*>(out.v)[k] =
        __shfl_sync(0xffffffffu, reinterpret_cast<const unsigned*>(x.v)[k], from);
  }
  return out;
}

// One store of 16 bytes: the compiler makes eight of 2 bytes out of store_vec here.
template <class T>
__device__ __forceinline__ void store_whole(T* p, const Vec<T>& x) {
  __stwb(reinterpret_cast<uint4*>(p), reinterpret_cast<const uint4&>(x));
}

template <class T>
__device__ __forceinline__ int64_t position_of(const Rope<T>& a, int64_t token) {
  return a.positions ? a.positions[token] : token % a.context;
}

// A warp takes a token. `lanes` of it share a head, lane i the i-th 16 bytes; the other element of every pair
// is in the lane half a head away.
template <class T>
__global__ void __launch_bounds__(256) rope_heads_kernel(const Rope<T> a, int lanes) {
  wait_for_inputs();
  constexpr int V = kVec<T>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int at_once = 32 / lanes;
  const int first_head = lane / lanes;
  const int vector = lane - first_head * lanes;
  const bool upper = vector >= lanes / 2;
  const int column = (upper ? vector - lanes / 2 : vector) * V;
  const int partner = first_head < at_once ? lane + (upper ? -lanes / 2 : lanes / 2) : lane;
  const int heads = static_cast<int>(a.heads);
  for (int64_t token = flat_index() / 32; token < a.tokens; token += flat_step() / 32) {
    const int64_t entry = position_of(a, token) * (a.head_dim / 2) + column;
    float cos[V];
    float sin[V];
    load_table(cos, a.cos + entry);
    load_table(sin, a.sin + entry);
#pragma unroll
    for (int k = 0; k < V; ++k) sin[k] = upper == a.inverse ? -sin[k] : sin[k];
    T* const row = a.qkv + token * a.row_stride + vector * V;
    for (int begin = 0; begin < heads; begin += kHeadsInFlight * at_once) {
      Vec<T> own[kHeadsInFlight];
#pragma unroll
      for (int i = 0; i < kHeadsInFlight; ++i) {
        const int head = begin + i * at_once + first_head;
        own[i] = load_or_zero(first_head < at_once && head < heads, row + head * a.head_dim);
      }
#pragma unroll
      for (int i = 0; i < kHeadsInFlight; ++i) {
        const Vec<T> other = exchange(own[i], partner);
        float x[V];
        float y[V];
        widen(x, own[i]);
        widen(y, other);
#pragma unroll
        for (int k = 0; k < V; ++k) x[k] = __fmaf_rn(x[k], cos[k], y[k] * sin[k]);
        const int head = begin + i * at_once + first_head;
        if (first_head < at_once && head < heads) store_whole(row + head * a.head_dim, round_vec<T>(x));
      }
    }
  }
}

// One pair a thread.
template <class T>
__global__ void __launch_bounds__(256) rope_pairs_kernel(const Rope<T> a) {
  wait_for_inputs();
  const int64_t half = a.head_dim / 2;
  const int64_t items = a.tokens * a.heads * half;
  for (int64_t i = flat_index(); i < items; i += flat_step()) {
    const int64_t rest = i / half;
    const int64_t column = i - rest * half;
    const int64_t token = rest / a.heads;
    const int64_t entry = position_of(a, token) * half + column;
    const float cos = a.cos[entry];
    const float sin = a.inverse ? -a.sin[entry] : a.sin[entry];
    T* const low = a.qkv + token * a.row_stride + (rest - token * a.heads) * a.head_dim + column;
    const float x = to_float(low[0]);
    const float y = to_float(low[half]);
    low[0] = from_float<T>(__fmaf_rn(x, cos, -y * sin));
    low[half] = from_float<T>(__fmaf_rn(y, cos, x * sin));
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
  const RopeLaunch launch = plan_rope(args.tokens, args.heads, args.head_dim, sizeof(T), vectorised, limits);
  const auto [threads, blocks] = launch.flat;
  if (launch.lanes > 0) {
    launch_kernel("rope", rope_heads_kernel<T>, blocks, threads, 0, stream, args, launch.lanes);
  } else {
    launch_kernel("rope", rope_pairs_kernel<T>, blocks, threads, 0, stream, args);
  }
}

template void rope(const Rope<float>&, const DeviceLimits&, Stream);
template void rope(const Rope<bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
