// Softmax cross-entropy with its gradient, one block a row. All sums are fp32 and in a fixed order.
//
// The target's own term is kept out of the sum ("others"), so that p(target) - 1 = -others / S and, for a
// confident row, loss = log1p(others) do not cancel.
#include <cmath>

#include "cuda/cross_entropy.h"
#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"

namespace narrowgauge::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kSlots = 8;  // 16-byte vectors of the row that a thread keeps in registers
constexpr float kLog2e = 1.4426950408889634f;

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T v[kWidth];
};

template <class T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(p);
}

// Element k of 16 raw bytes of T: as one register, where an array of T would take two for each pair.
template <class T>
__device__ __forceinline__ float element(const uint4& raw, int k) {
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
  if constexpr (sizeof(T) == 4) return __uint_as_float(words[k]);
  return __uint_as_float(k % 2 == 0 ? words[k / 2] << 16 : words[k / 2] & 0xffff0000u);
}

// exp(x - m); 0 for x = -Inf, NaN for NaN.
__device__ __forceinline__ float exp_minus(float x, float m) { return exp2f((x - m) * kLog2e); }

// Maximum over the block, for every thread; NaN is not seen (the sum carries it). `shared` holds 32 floats.
__device__ __forceinline__ float block_max(float x, float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  x = warp_max(x);
  if (lane == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_max(lane < warps ? shared[lane] : -INFINITY);
}

template <class T>
__device__ __forceinline__ T* row_of(const CrossEntropy<T>& a) {
  return a.logits + static_cast<int64_t>(blockIdx.x) * a.row_stride;
}

// What a row needs for its gradient: scale * (p * factor - [column == target]).
struct RowGradient {
  float peak;         // what exp is taken relative to
  float coefficient;  // exp(x - peak) * coefficient is the gradient of a column that is not the target
  float target;       // gradient of the target's column
};

// Writes the row's loss and log-sum-exp (thread 0) and returns its gradient's constants. `x_target` <=
// `peak`.
template <class T>
__device__ __forceinline__ RowGradient finish_row(const CrossEntropy<T>& a, float peak, float others,
                                                  float x_target) {
  const float own = exp_minus(x_target, peak);
  const float sum = others + own;
  const float log_sum = own == 1.0f ? log1pf(others) : logf(sum);
  const float lse = peak + log_sum;
  if (threadIdx.x == 0) {
    a.losses[blockIdx.x] = (peak - x_target) + log_sum + a.z_loss * lse * lse;
    a.lse[blockIdx.x] = lse;
  }
  if (!a.gradient) return {};
  const float scale = *a.scale;
  const float z = 2.0f * a.z_loss * lse;
  const float inverse = 1.0f / sum;
  return {.peak = peak,
          .coefficient = scale * (1.0f + z) * inverse,
          .target = scale * (own * z - others) * inverse};
}

template <class T>
__device__ __forceinline__ void zero_columns(T* x, int64_t first, int64_t end) {
  for (int64_t c = first + threadIdx.x; c < end; c += blockDim.x) x[c] = from_float<T>(0.0f);
}

// Rows without a valid target: ignored (0) or out of range (NaN). True when the row is done.
template <class T>
__device__ __forceinline__ bool row_without_target(const CrossEntropy<T>& a, T* x, int32_t target) {
  const bool ignored = target == a.ignore_index;
  if (!ignored && target >= 0 && target < a.vocab) return false;
  if (a.gradient) zero_columns(x, 0, a.columns);
  if (threadIdx.x == 0) a.losses[blockIdx.x] = a.lse[blockIdx.x] = ignored ? 0.0f : NAN;
  return true;
}

__device__ __forceinline__ float gradient_of(const RowGradient& g, float x, bool is_target) {
  return is_target ? g.target : exp_minus(x, g.peak) * g.coefficient;
}

// The row in registers: kSlots vectors a thread and, in the first threads, one of the last vocab % kVec
// columns.
template <class T>
__global__ void __launch_bounds__(kMaxThreads) resident_kernel(CrossEntropy<T> a) {
  wait_for_inputs();
  __shared__ float shared_max[32];
  __shared__ float shared_sum[32];
  T* x = row_of(a);
  const int32_t target = a.targets[blockIdx.x];
  if (row_without_target(a, x, target)) return;

  const int tid = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int vocab = static_cast<int>(a.vocab);
  const int vectors = vocab / kVec<T>;
  const int tail_column = vectors * kVec<T> + tid;
  const bool has_tail = tail_column < vocab;
  const float x_target = to_float(x[target]);

  uint4 kept[kSlots];
  float tail = 0.0f;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int vector = s * threads + tid;
    if (vector < vectors) kept[s] = *reinterpret_cast<const uint4*>(x + vector * kVec<T>);
  }
  float peak = x_target;
  if (has_tail) {
    tail = to_float(x[tail_column]);
    peak = fmaxf(peak, tail);
  }
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    if (s * threads + tid >= vectors) break;
#pragma unroll
    for (int k = 0; k < kVec<T>; ++k) peak = fmaxf(peak, element<T>(kept[s], k));
  }
  peak = block_max(peak, shared_max);

  float others = has_tail && tail_column != target ? exp_minus(tail, peak) : 0.0f;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int vector = s * threads + tid;
    if (vector >= vectors) break;
    const int target_lane = target - vector * kVec<T>;
#pragma unroll
    for (int k = 0; k < kVec<T>; ++k) {
      const float e = exp_minus(element<T>(kept[s], k), peak);
      others += k == target_lane ? 0.0f : e;
    }
  }
  others = block_sum(others, shared_sum);

  const RowGradient g = finish_row(a, peak, others, x_target);
  if (!a.gradient) return;
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int vector = s * threads + tid;
    if (vector >= vectors) break;
    const int target_lane = target - vector * kVec<T>;
    Vec<T> out;
#pragma unroll
    for (int k = 0; k < kVec<T>; ++k) {
      out.v[k] = from_float<T>(gradient_of(g, element<T>(kept[s], k), k == target_lane));
    }
    store_vec(x + vector * kVec<T>, out);
  }
  if (has_tail) x[tail_column] = from_float<T>(gradient_of(g, tail, tail_column == target));
  zero_columns(x, a.vocab, a.columns);
}

// Running maximum and sum of exp relative to it, over the columns other than the target.
struct Online {
  float peak;
  float others;
};

__device__ __forceinline__ void accumulate(Online& o, float x, bool is_target) {
  if (x > o.peak) {
    o.others *= exp_minus(o.peak, x);  // a first peak of -Inf has others = 0 or NaN
    o.peak = x;
  }
  // Until a finite logit is seen the peak is -Inf, and the difference of two infinities is to be avoided.
  const float e = exp_minus(x, o.peak == -INFINITY ? 0.0f : o.peak);
  o.others += is_target ? 0.0f : e;
}

// A row of any length, read twice; the second pass runs backwards, over what the first left in L2.
template <class T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads) streaming_kernel(CrossEntropy<T> a) {
  wait_for_inputs();
  __shared__ float shared_max[32];
  __shared__ float shared_sum[32];
  T* x = row_of(a);
  const int32_t target = a.targets[blockIdx.x];
  if (row_without_target(a, x, target)) return;

  const int tid = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int vocab = static_cast<int>(a.vocab);
  const int packs = vocab / kWidth;
  const int tail_column = packs * kWidth + tid;
  const bool has_tail = tail_column < vocab;
  const float x_target = to_float(x[target]);

  Online o{.peak = -INFINITY, .others = 0.0f};
#pragma unroll 4
  for (int p = tid; p < packs; p += threads) {
    const auto pack = load_pack<T, kWidth>(x + static_cast<int64_t>(p) * kWidth);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) accumulate(o, to_float(pack.v[k]), p * kWidth + k == target);
  }
  if (has_tail) accumulate(o, to_float(x[tail_column]), tail_column == target);
  const float peak = block_max(fmaxf(o.peak, x_target), shared_max);
  // A thread without a finite logit has others = 0 (or NaN) already relative to 0.
  const float own_scale = o.peak == -INFINITY ? 1.0f : exp_minus(o.peak, peak);
  const float others = block_sum(o.others * own_scale, shared_sum);

  const RowGradient g = finish_row(a, peak, others, x_target);
  if (!a.gradient) return;
  zero_columns(x, a.vocab, a.columns);
  if (has_tail) {
    x[tail_column] = from_float<T>(gradient_of(g, to_float(x[tail_column]), tail_column == target));
  }
  const int last = packs - 1 - tid;
#pragma unroll 4
  for (int p = last; p >= 0; p -= threads) {
    T* at = x + static_cast<int64_t>(p) * kWidth;
    auto pack = load_pack<T, kWidth>(at);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      pack.v[k] = from_float<T>(gradient_of(g, to_float(pack.v[k]), p * kWidth + k == target));
    }
    *reinterpret_cast<Pack<T, kWidth>*>(at) = pack;
  }
}

}  // namespace

CrossEntropyLaunch plan_cross_entropy(int64_t vocab, int lanes, bool vectors, const DeviceLimits& limits) {
  constexpr int kMinThreads = 64;
  const int64_t needed = ceil_div<int64_t>(ceil_div<int64_t>(vocab / lanes, kSlots), 32) * 32;
  if (vectors && needed <= kMaxThreads) {
    return {.threads = static_cast<int>(needed < kMinThreads ? kMinThreads : needed),
            .resident = true,
            .vectors = true};
  }
  // Two blocks a multiprocessor, so that one loads while the other waits at a barrier.
  const int half = limits.max_threads_per_sm / 2 / 32 * 32;
  return {.threads = half < kMinThreads ? kMinThreads : (half > kMaxThreads ? kMaxThreads : half),
          .resident = false,
          .vectors = vectors};
}

template <class T>
void cross_entropy(const CrossEntropy<T>& args, const DeviceLimits& limits, Stream stream) {
  require(args.rows >= 0 && args.rows <= INT32_MAX, "cross_entropy: rows must be in [0, 2^31)");
  require(args.vocab >= 1 && args.vocab <= args.columns && args.columns < (int64_t{1} << 30),
          "cross_entropy: 1 <= vocab <= columns < 2^30");
  require(args.row_stride >= args.columns, "cross_entropy: row_stride is less than columns");
  if (args.rows == 0) return;
  require(args.logits && args.losses && args.lse && args.targets && (args.scale || !args.gradient),
          "cross_entropy: null pointer");
  const bool vectors = aligned16(args.logits) && args.row_stride % kVec<T> == 0;
  const CrossEntropyLaunch plan = plan_cross_entropy(args.vocab, kVec<T>, vectors, limits);
  const auto blocks = static_cast<unsigned>(args.rows);
  if (plan.resident) {
    launch_kernel("cross_entropy", resident_kernel<T>, blocks, plan.threads, 0, stream, args);
  } else if (plan.vectors) {
    launch_kernel("cross_entropy", streaming_kernel<T, kVec<T>>, blocks, plan.threads, 0, stream, args);
  } else {
    launch_kernel("cross_entropy", streaming_kernel<T, 1>, blocks, plan.threads, 0, stream, args);
  }
}

template void cross_entropy<float>(const CrossEntropy<float>&, const DeviceLimits&, Stream);
template void cross_entropy<__nv_bfloat16>(const CrossEntropy<__nv_bfloat16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
