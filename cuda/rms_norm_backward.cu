#include "cuda/rms_norm.h"

#include "cuda/async_copy.cuh"
#include "cuda/rms_norm_rows.cuh"

namespace narrowgauge::cuda {
namespace {

// The partial dweight of a block is one row of scratch in this order: element k of vector c at
// k * (cols / V) + c, so that neighbouring threads touch neighbouring words.

// Adds the blocks' partial sums to dweight. A block takes 32 columns; each warp sums every 32nd partial row.
__global__ void __launch_bounds__(1024)
    add_partials_kernel(float* dweight, const float* scratch, int64_t cols, int rows, int vector) {
  wait_for_inputs();
  constexpr int kTogether = 12;  // loads in flight
  __shared__ float shared[32][33];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t first = int64_t{blockIdx.x} * 32;
  float sum = 0.0f;
  if (first + lane < cols) {
    const float* column = scratch + first + lane;
    for (int start = warp; start < rows; start += 32 * kTogether) {
      float part[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int row = start + 32 * i;
        part[i] = row < rows ? column[row * cols] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) sum += part[i];
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  const float total = warp_sum(shared[lane][warp]);
  const int64_t word = first + warp;
  if (lane == 0 && word < cols) {
    const int64_t vectors = cols / vector;
    dweight[word % vectors * vector + word / vectors] += total;
  }
}

// A row in shared memory, as one thread sees it: its N vectors of x, of dy and of dresidual, each 32 vectors
// (one of every lane of its warp) apart. A thread touches only its own vectors: no barrier is needed.
template <class T, int N>
struct Staged {
  Vec<T>* first;

  __device__ __forceinline__ Vec<T>* at(int stage, int tensor, int i) const {
    return first + ((stage * kRmsNormStagedTensors + tensor) * N + i) * 32;
  }

  // Starts the copy of a thread's vectors of a row.
  __device__ __forceinline__ void copy(int stage, int tensor, const T* row, int first_column,
                                       int vectors) const {
    row += first_column * kVec<T>;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (first_column + 32 * i < vectors) {
        copy16(at(stage, tensor, i), row + i * (32 * kVec<T>));
      }
    }
  }
};

// Blocks walk over the rows; `lanes` threads share a row, N vectors a thread. While a row is worked on, the
// next one is copied to shared memory. dweight is summed in registers over the rows of a thread, then over
// the block: groups of a warp by shuffles, warps in their order. kNormed: y is written; a kernel of its own,
// so that the other one keeps its registers.
template <class T, int N, bool kNormed>
__global__ void __launch_bounds__(kRmsNormThreads, rms_norm_backward_residency(N))
    rms_norm_backward_kernel(RmsNormBackward<T> a, int lanes) {
  wait_for_inputs();
  constexpr int V = kVec<T>;
  extern __shared__ uint4 dynamic[];  // the staged rows; after the last one, a partial dweight of each warp
  __shared__ float shared[2][32];     // in turns: one barrier a row is enough
  const int shift = __popc(static_cast<unsigned>(lanes) - 1);
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int first = first_vector<N>(lane);
  const int rows_per_block = static_cast<int>(blockDim.x) >> shift;
  const int64_t step = int64_t{gridDim.x} * rows_per_block;
  const int row_vectors = static_cast<int>(a.cols) / V;
  const float inverse_cols = 1.0f / static_cast<float>(a.cols);
  const Staged<T, N> staged{reinterpret_cast<Vec<T>*>(dynamic) +
                            warp * (kRmsNormStages * kRmsNormStagedTensors * N * 32) + threadIdx.x % 32};

  // Starts the copy of `row` and returns its rstd; beyond the last row nothing is copied.
  const auto fetch = [&](int stage, int64_t row) {
    float rstd = 0.0f;
    if (row < a.rows) {
      const RowPlace place(row, a.group, a.cols);
      staged.copy(stage, 0, place.of(a.x, a.x_stride), first, row_vectors);
      staged.copy(stage, 1, place.of(a.dy, a.dy_stride), first, row_vectors);
      if (a.dresidual) staged.copy(stage, 2, place.of(a.dresidual, a.dresidual_stride), first, row_vectors);
      rstd = a.rstd[row];
    }
    end_copies();
    return rstd;
  };

  int64_t base = int64_t{blockIdx.x} * rows_per_block;
  int64_t row = base + (static_cast<int>(threadIdx.x) >> shift);
  float next_rstd = fetch(0, row);
  Vec<T> weight[N];
  load_row(weight, a.weight, first, row_vectors);
  float dweight[N][V] = {};
  int turn = 0;
  for (; base < a.rows; base += step, row += step, turn ^= 1) {
    const float rstd = next_rstd;
    next_rstd = fetch(turn ^ 1, row + step);
    wait_copies<1>();
    const int vectors = row < a.rows ? row_vectors : 0;

    Vec<T> x[N];
    Vec<T> dy[N];
    float dot = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const bool inside = first + 32 * i < vectors;
      x[i] = load_or_zero(inside, staged.at(turn, 0, i)->v);
      dy[i] = load_or_zero(inside, staged.at(turn, 1, i)->v);
      float w[V];
      float f[V];
      float d[V];
      widen(w, weight[i]);
      widen(f, x[i]);
      widen(d, dy[i]);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const float p = d[k] * (f[k] * rstd);
        dweight[i][k] += p;
        dot += p * w[k];
      }
      keep_packed(weight[i]);
      keep_packed(x[i]);
      keep_packed(dy[i]);
    }
    const float mean = row_sum(dot, lanes, shared[turn]) * inverse_cols;

    const RowPlace place(row, a.group, a.cols);
    T* dx_row = place.of(a.dx, a.dx_stride);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int c = first + 32 * i;
      if (c >= vectors) break;
      float w[V];
      float f[V];
      float r[V] = {};
      float dx[V];
      widen(w, weight[i]);
      widen(f, x[i]);
      widen(dx, dy[i]);
      if constexpr (kNormed) {  // before dx: after it, more registers are alive
        float y[V];
#pragma unroll
        for (int k = 0; k < V; ++k) y[k] = f[k] * rstd * w[k];
        store_vec(place.of(a.y, a.y_stride) + c * V, round_vec<T>(y));
      }
      if (a.dresidual) widen(r, *staged.at(turn, 2, i));
#pragma unroll
      for (int k = 0; k < V; ++k) dx[k] = rstd * (dx[k] * w[k] - f[k] * rstd * mean) + r[k];
      store_vec(dx_row + c * V, round_vec<T>(dx));
      keep_packed(weight[i]);
    }
  }

  // With lanes > 32 the block is one row's threads and each owns its columns.
  float* partial = a.scratch + int64_t{blockIdx.x} * a.cols;
  float* target = lanes > 32 ? partial : reinterpret_cast<float*>(dynamic) + warp * a.cols;
  for (int offset = lanes; offset < 32; offset *= 2) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int k = 0; k < V; ++k) dweight[i][k] += __shfl_xor_sync(0xffffffffu, dweight[i][k], offset);
    }
  }
  __syncthreads();
  if (lanes > 32 || static_cast<int>(threadIdx.x) % 32 < lanes) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int c = first + 32 * i;
      if (c < row_vectors) {
#pragma unroll
        for (int k = 0; k < V; ++k) target[k * row_vectors + c] = dweight[i][k];
      }
    }
  }
  if (lanes > 32) return;
  __syncthreads();
  const float* of_warps = reinterpret_cast<const float*>(dynamic);
  for (int word = static_cast<int>(threadIdx.x); word < a.cols; word += static_cast<int>(blockDim.x)) {
    float sum = of_warps[word];
    for (int w = 1; w < static_cast<int>(blockDim.x) / 32; ++w) sum += of_warps[w * a.cols + word];
    partial[word] = sum;
  }
}

// Any width and alignment: a block a row, which reads the row twice; a thread owns its columns of the partial
// dweight in scratch.
template <class T>
__global__ void __launch_bounds__(kRmsNormThreads, rms_norm_backward_residency(0))
    rms_norm_backward_any_kernel(RmsNormBackward<T> a, int lanes) {
  wait_for_inputs();
  __shared__ float shared[2][32];
  float* partial = a.scratch + int64_t{blockIdx.x} * a.cols;
  for (int64_t c = threadIdx.x; c < a.cols; c += lanes) partial[c] = 0.0f;
  int turn = 0;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const RowPlace place(row, a.group, a.cols);
    const T* x = place.of(a.x, a.x_stride);
    const T* dy = place.of(a.dy, a.dy_stride);
    const float rstd = a.rstd[row];
    float dot = 0.0f;
    for (int64_t c = threadIdx.x; c < a.cols; c += lanes) {
      const float d = to_float(dy[c]) * (to_float(x[c]) * rstd);
      partial[c] += d;
      dot += d * to_float(a.weight[c]);
    }
    const float mean = row_sum(dot, lanes, shared[turn]) / static_cast<float>(a.cols);
    turn ^= 1;
    T* dx = place.of(a.dx, a.dx_stride);
    T* y = a.y ? place.of(a.y, a.y_stride) : nullptr;
    const T* dresidual = a.dresidual ? place.of(a.dresidual, a.dresidual_stride) : nullptr;
    for (int64_t c = threadIdx.x; c < a.cols; c += lanes) {
      const float m = to_float(dy[c]) * to_float(a.weight[c]);
      const float f = to_float(x[c]);
      const float d = rstd * (m - f * rstd * mean);
      dx[c] = from_float<T>(dresidual ? d + to_float(dresidual[c]) : d);
      if (y) y[c] = from_float<T>(f * rstd * to_float(a.weight[c]));
    }
  }
}

template <class T>
void check_arguments(const RmsNormBackward<T>& a) {
  require(a.rows >= 0 && a.rows < int64_t{1} << 31, "rms_norm_backward: rows is outside [0, 2^31)");
  require(a.cols >= 1, "rms_norm_backward: cols is below 1");
  require(a.group >= 1, "rms_norm_backward: group is below 1");
  if (a.rows == 0) return;
  require(a.dx && a.dweight && a.scratch && a.dy && a.x && a.weight && a.rstd,
          "rms_norm_backward: null pointer");
  require(a.dx_stride >= a.group * a.cols, "rms_norm_backward: dx_stride is below group * cols");
  require(!a.y || a.y_stride >= a.group * a.cols, "rms_norm_backward: y_stride is below group * cols");
  require(!a.y || (a.y != a.dx && a.y != a.dy), "rms_norm_backward: y is dx or dy");
  require(a.dy_stride >= 0 && a.x_stride >= 0 && a.dresidual_stride >= 0,
          "rms_norm_backward: a stride is negative");
}

template <class T>
bool vectorised(const RmsNormBackward<T>& a) {
  const int64_t all = a.cols | a.dx_stride | a.y_stride | a.dy_stride | a.x_stride | a.dresidual_stride;
  return all % kVec<T> == 0 && aligned16(a.dx) && aligned16(a.y) && aligned16(a.dy) && aligned16(a.x) &&
         aligned16(a.dresidual) && aligned16(a.weight);
}

template <class T>
using Kernel = void (*)(RmsNormBackward<T>, int);

// The kernel for `vectors` vectors a thread.
template <class T, bool kNormed>
Kernel<T> kernel_of(int vectors) {
  constexpr Kernel<T> kKernels[kRmsNormMaxVectors + 1] = {
      rms_norm_backward_any_kernel<T>,         rms_norm_backward_kernel<T, 1, kNormed>,
      rms_norm_backward_kernel<T, 2, kNormed>, rms_norm_backward_kernel<T, 3, kNormed>,
      rms_norm_backward_kernel<T, 4, kNormed>, rms_norm_backward_kernel<T, 5, kNormed>,
      rms_norm_backward_kernel<T, 6, kNormed>, rms_norm_backward_kernel<T, 7, kNormed>,
      rms_norm_backward_kernel<T, 8, kNormed>};
  return kKernels[vectors];
}

}  // namespace

template <class T>
void rms_norm_backward(const RmsNormBackward<T>& args, const DeviceLimits& limits, Stream stream) {
  check_arguments(args);
  if (args.rows == 0) return;
  const RmsNormLaunch launch =
      plan_rms_norm_backward(args.rows, args.cols, sizeof(T), vectorised(args), limits);
  const Kernel<T> kernel = args.y ? kernel_of<T, true>(launch.vectors) : kernel_of<T, false>(launch.vectors);
  allow_shared_memory(kernel, launch.shared_bytes);
  launch_kernel("rms_norm_backward", kernel, launch.blocks, launch.threads,
                static_cast<size_t>(launch.shared_bytes), stream, args, launch.lanes);
  const int64_t column_blocks = ceil_div<int64_t>(args.cols, 32);
  require(column_blocks < int64_t{1} << 31, "rms_norm_backward: cols is too large");
  launch_kernel("rms_norm_backward: add_partials", add_partials_kernel, static_cast<unsigned>(column_blocks),
                1024, 0, stream, args.dweight, args.scratch, args.cols, launch.blocks,
                launch.vectors == 0 ? 1 : kVec<T>);
}

template void rms_norm_backward(const RmsNormBackward<float>&, const DeviceLimits&, Stream);
template void rms_norm_backward(const RmsNormBackward<bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
