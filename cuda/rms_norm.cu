#include "cuda/rms_norm.h"

#include "cuda/async_copy.cuh"
#include "cuda/rms_norm_rows.cuh"

namespace narrowgauge::cuda {
namespace {

// One row for each `lanes` threads, N vectors a thread in registers; the weight in shared memory.
template <class T, int N, bool kAdd>
__global__ void __launch_bounds__(kRmsNormThreads) rms_norm_kernel(RmsNorm<T> a, int lanes) {
  wait_for_inputs();
  constexpr int V = kVec<T>;
  extern __shared__ uint4 staged_weight[];
  __shared__ float shared[32];
  const int shift = __popc(static_cast<unsigned>(lanes) - 1);
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int first = first_vector<N>(lane);
  const int64_t row = int64_t{blockIdx.x} * (blockDim.x >> shift) + (threadIdx.x >> shift);
  const int row_vectors = static_cast<int>(a.cols) / V;
  const int vectors = row < a.rows ? row_vectors : 0;
  const RowPlace place(row, a.group, a.cols);

  Vec<T> x[N];
  load_row(x, place.of(a.x, a.x_stride), first, vectors);
  for (int c = static_cast<int>(threadIdx.x); c < row_vectors; c += static_cast<int>(blockDim.x)) {
    copy16(staged_weight + c, a.weight + c * V);
  }
  end_copies();
  if constexpr (kAdd) {
    Vec<T> residual[N];
    load_row(residual, place.of(a.residual, a.residual_stride), first, vectors);
    T* sum = place.of(a.sum, a.sum_stride);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float s[V];
      float r[V];
      widen(s, x[i]);
      widen(r, residual[i]);
#pragma unroll
      for (int k = 0; k < V; ++k) s[k] += r[k];
      x[i] = round_vec<T>(s);
      const int c = first + 32 * i;
      if (c < vectors) store_vec(sum + c * V, x[i]);
    }
  }

  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float f[V];
    widen(f, x[i]);
#pragma unroll
    for (int k = 0; k < V; ++k) squares += f[k] * f[k];
    keep_packed(x[i]);
  }
  squares = row_sum(squares, lanes, shared);
  const float rstd = rsqrtf(squares / static_cast<float>(a.cols) + a.eps);
  if (lane == 0 && row < a.rows) a.rstd[row] = rstd;
  wait_copies<0>();
  __syncthreads();

  const T* weight = reinterpret_cast<const T*>(staged_weight);
  T* y = place.of(a.y, a.y_stride);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int c = first + 32 * i;
    if (c >= vectors) break;
    float out[V];
    float w[V];
    widen(out, x[i]);
    widen(w, load_vec(weight + c * V));
#pragma unroll
    for (int k = 0; k < V; ++k) out[k] = out[k] * rstd * w[k];
    store_vec(y + c * V, round_vec<T>(out));
  }
}

// Any width and alignment: a block a row, which reads x (or the sum) twice.
template <class T>
__global__ void __launch_bounds__(kRmsNormThreads) rms_norm_any_kernel(RmsNorm<T> a, int lanes) {
  wait_for_inputs();
  __shared__ float shared[32];
  const int64_t row = blockIdx.x;
  const RowPlace place(row, a.group, a.cols);
  const T* x = place.of(a.x, a.x_stride);
  float squares = 0.0f;
  if (a.residual) {
    const T* residual = place.of(a.residual, a.residual_stride);
    T* sum = place.of(a.sum, a.sum_stride);
    for (int64_t c = threadIdx.x; c < a.cols; c += lanes) {
      const T s = from_float<T>(to_float(x[c]) + to_float(residual[c]));
      sum[c] = s;
      squares += to_float(s) * to_float(s);
    }
    x = sum;
  } else {
    for (int64_t c = threadIdx.x; c < a.cols; c += lanes) squares += to_float(x[c]) * to_float(x[c]);
  }
  squares = row_sum(squares, lanes, shared);
  const float rstd = rsqrtf(squares / static_cast<float>(a.cols) + a.eps);
  if (threadIdx.x == 0) a.rstd[row] = rstd;
  T* y = place.of(a.y, a.y_stride);
  for (int64_t c = threadIdx.x; c < a.cols; c += lanes) {
    y[c] = from_float<T>(to_float(x[c]) * rstd * to_float(a.weight[c]));
  }
}

template <class T>
using Kernel = void (*)(RmsNorm<T>, int);

// By the vectors of a thread.
template <class T, bool kAdd>
constexpr Kernel<T> kKernels[kRmsNormMaxVectors + 1] = {
    rms_norm_any_kernel<T>,      rms_norm_kernel<T, 1, kAdd>, rms_norm_kernel<T, 2, kAdd>,
    rms_norm_kernel<T, 3, kAdd>, rms_norm_kernel<T, 4, kAdd>, rms_norm_kernel<T, 5, kAdd>,
    rms_norm_kernel<T, 6, kAdd>, rms_norm_kernel<T, 7, kAdd>, rms_norm_kernel<T, 8, kAdd>};

template <class T>
void check_arguments(const RmsNorm<T>& a) {
  require(a.rows >= 0 && a.rows < int64_t{1} << 31, "rms_norm: rows is outside [0, 2^31)");
  require(a.cols >= 1, "rms_norm: cols is below 1");
  require(a.group >= 1, "rms_norm: group is below 1");
  if (a.rows == 0) return;
  require(a.y && a.rstd && a.x && a.weight, "rms_norm: null pointer");
  require((a.sum == nullptr) == (a.residual == nullptr), "rms_norm: sum and residual go together");
  require(a.y_stride >= a.group * a.cols, "rms_norm: y_stride is below group * cols");
  require(a.x_stride >= 0 && a.residual_stride >= 0, "rms_norm: a stride is negative");
  if (a.residual) {
    require(a.sum_stride >= a.group * a.cols, "rms_norm: sum_stride is below group * cols");
    require(a.y != a.sum, "rms_norm: y and sum are the same tensor");
  }
}

template <class T>
bool vectorised(const RmsNorm<T>& a) {
  const int64_t all = a.cols | a.y_stride | a.x_stride | a.sum_stride | a.residual_stride;
  return all % kVec<T> == 0 && aligned16(a.y) && aligned16(a.x) && aligned16(a.sum) &&
         aligned16(a.residual) && aligned16(a.weight);
}

}  // namespace

template <class T>
void rms_norm(const RmsNorm<T>& args, const DeviceLimits&, Stream stream) {
  check_arguments(args);
  if (args.rows == 0) return;
  const RmsNormLaunch launch = plan_rms_norm(args.rows, args.cols, sizeof(T), vectorised(args));
  const auto kernel = (args.residual ? kKernels<T, true> : kKernels<T, false>)[launch.vectors];
  launch_kernel("rms_norm", kernel, launch.blocks, launch.threads, static_cast<size_t>(launch.shared_bytes),
                stream, args, launch.lanes);
}

template void rms_norm(const RmsNorm<float>&, const DeviceLimits&, Stream);
template void rms_norm(const RmsNorm<bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
