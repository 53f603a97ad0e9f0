#include "cuda/launch.cuh"
#include "cuda/swiglu.h"
#include "cuda/vec.cuh"

namespace narrowgauge::cuda {
namespace {

// 1 / (1 + exp(-x)) to about 2 ulp; exp overflowing to Inf gives the right 0.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// One definition, so that the product recomputed in backward has forward's bits.
__device__ __forceinline__ float product(float gate, float up, float s) { return gate * s * up; }

template <class T, int V>
__global__ void __launch_bounds__(256) swiglu_kernel(Swiglu<T> a) {
  wait_for_inputs();
  const int64_t vectors = a.cols / V;
  const int64_t items = a.rows * vectors;
  for (int64_t i = flat_index(); i < items; i += flat_step()) {
    const int64_t row = i / vectors;
    const T* gate_row = a.gate_up + (i + row * vectors) * V;
    const Vec<T, V> gate = load_vec<T, V>(gate_row);
    const Vec<T, V> up = load_vec<T, V>(gate_row + a.cols);
    float g[V];
    float u[V];
    float out[V];
    widen(g, gate);
    widen(u, up);
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = product(g[k], u[k], sigmoid(g[k]));
    store_vec(a.out + i * V, round_vec<T>(out));
  }
}

template <class T, int V>
__global__ void __launch_bounds__(256) swiglu_backward_kernel(SwigluBackward<T> a) {
  wait_for_inputs();
  const int64_t vectors = a.cols / V;
  const int64_t items = a.rows * vectors;
  for (int64_t i = flat_index(); i < items; i += flat_step()) {
    const int64_t row = i / vectors;
    const int64_t gate_offset = (i + row * vectors) * V;
    const Vec<T, V> gate = load_vec<T, V>(a.gate_up + gate_offset);
    const Vec<T, V> up = load_vec<T, V>(a.gate_up + gate_offset + a.cols);
    const Vec<T, V> dout = load_vec<T, V>(a.dout + i * V);
    float g[V];
    float u[V];
    float d[V];
    float dgate[V];
    float dup[V];
    float out[V];
    widen(g, gate);
    widen(u, up);
    widen(d, dout);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float s = sigmoid(g[k]);
      dgate[k] = d[k] * u[k] * s * (1.0f + g[k] * (1.0f - s));
      dup[k] = d[k] * (g[k] * s);
      out[k] = product(g[k], u[k], s);
    }
    store_vec(a.dgate_up + gate_offset, round_vec<T>(dgate));
    store_vec(a.dgate_up + gate_offset + a.cols, round_vec<T>(dup));
    if (a.out) store_vec(a.out + i * V, round_vec<T>(out));
  }
}

// False when there is nothing to do.
bool check_sizes(int64_t rows, int64_t cols) {
  require(rows >= 0, "swiglu: rows is negative");
  require(cols >= 1, "swiglu: cols is below 1");
  return rows > 0;
}

}  // namespace

template <class T>
void swiglu(const Swiglu<T>& args, const DeviceLimits& limits, Stream stream) {
  if (!check_sizes(args.rows, args.cols)) return;
  require(args.out && args.gate_up, "swiglu: null pointer");
  const bool vectorised = args.cols % kVec<T> == 0 && aligned16(args.out) && aligned16(args.gate_up);
  const FlatLaunch launch = plan_swiglu(args.rows, args.cols, sizeof(T), vectorised, limits);
  const auto kernel = vectorised ? swiglu_kernel<T, kVec<T>> : swiglu_kernel<T, 1>;
  launch_kernel("swiglu", kernel, launch.blocks, launch.threads, 0, stream, args);
}

template <class T>
void swiglu_backward(const SwigluBackward<T>& args, const DeviceLimits& limits, Stream stream) {
  if (!check_sizes(args.rows, args.cols)) return;
  require(args.dgate_up && args.dout && args.gate_up, "swiglu_backward: null pointer");
  const bool vectorised = args.cols % kVec<T> == 0 && aligned16(args.dgate_up) && aligned16(args.dout) &&
                          aligned16(args.gate_up) && aligned16(args.out);
  const FlatLaunch launch = plan_swiglu(args.rows, args.cols, sizeof(T), vectorised, limits);
  const auto kernel = vectorised ? swiglu_backward_kernel<T, kVec<T>> : swiglu_backward_kernel<T, 1>;
  launch_kernel("swiglu_backward", kernel, launch.blocks, launch.threads, 0, stream, args);
}

template void swiglu(const Swiglu<float>&, const DeviceLimits&, Stream);
template void swiglu(const Swiglu<bf16>&, const DeviceLimits&, Stream);
template void swiglu_backward(const SwigluBackward<float>&, const DeviceLimits&, Stream);
template void swiglu_backward(const SwigluBackward<bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
