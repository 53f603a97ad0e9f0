// Softmax cross-entropy with its gradient, a block a row at a time. All sums are fp32 and in a fixed order.
//
// The target's own term is kept out of the sum ("others"), so that p(target) - 1 = -others / S and, for a
// confident row, loss = log1p(others) do not cancel.
#include <algorithm>
#include <cmath>

#include "cuda/async_copy.cuh"
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

// 16 raw bytes of T: as registers, where an array of T would take two for each pair.
template <class T>
__device__ __forceinline__ float element(const uint4& raw, int k) {
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
  if constexpr (sizeof(T) == 4) return __uint_as_float(words[k]);
  return __uint_as_float(k % 2 == 0 ? words[k / 2] << 16 : words[k / 2] & 0xffff0000u);
}

// The largest element of `raw` and `best`; a NaN loses.
template <class T>
__device__ __forceinline__ uint4 larger_elements(const uint4& best, const uint4& raw) {
  uint4 out;
  const auto* a = reinterpret_cast<const unsigned*>(&best);
  const auto* b = reinterpret_cast<const unsigned*>(&raw);
  auto* to = reinterpret_cast<unsigned*>(&out);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      to[i] = __float_as_uint(fmaxf(__uint_as_float(a[i]), __uint_as_float(b[i])));
    } else {
      const __nv_bfloat162 larger = __hmax2(reinterpret_cast<const __nv_bfloat162&>(a[i]),
                                            reinterpret_cast<const __nv_bfloat162&>(b[i]));
      to[i] = reinterpret_cast<const unsigned&>(larger);
    }
  }
  return out;
}

// Every element -Inf: what is absent from a maximum and from a sum of exp.
template <class T>
__device__ __forceinline__ uint4 absent() {
  constexpr unsigned kWord = sizeof(T) == 4 ? 0xff800000u : 0xff80ff80u;
  return {kWord, kWord, kWord, kWord};
}

// Puts -Inf into the place of element `lane`.
template <class T>
__device__ __forceinline__ void remove_element(uint4& raw, int lane) {
  constexpr int kPerWord = 4 / static_cast<int>(sizeof(T));
  const int bits = lane % kPerWord * 16;  // where a bf16 begins in its word
  const unsigned mask = sizeof(T) == 4 ? 0xffffffffu : 0xffffu << bits;
  const auto remove = [&](unsigned& word, int i) {
    const unsigned gone = i == lane / kPerWord ? mask : 0u;
    word = (word & ~gone) | (absent<T>().x & gone);
  };
  remove(raw.x, 0);
  remove(raw.y, 1);
  remove(raw.z, 2);
  remove(raw.w, 3);
}

// Makes the compiler forget what it derived from raw, so that raw waits in its packed form.
__device__ __forceinline__ void keep_registers(uint4& raw) {
  asm volatile("" : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w));
}

// 2^x; results below 2^-126 are 0.
__device__ __forceinline__ float power(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// exp(x - m); 0 for x = -Inf, NaN for NaN.
__device__ __forceinline__ float exp_minus(float x, float m) { return power((x - m) * kLog2e); }

// Maximum over the block, for every thread; NaN is not seen (the sum carries it). `shared` holds 32 floats.
__device__ __forceinline__ float block_max(float x, float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  x = warp_max(x);
  if (lane == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_max(lane < warps ? shared[lane] : -INFINITY);
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
__device__ __forceinline__ RowGradient finish_row(const CrossEntropy<T>& a, int64_t row, float peak,
                                                  float others, float x_target) {
  const float own = exp_minus(x_target, peak);
  const float sum = others + own;
  const float log_sum = own == 1.0f ? log1pf(others) : logf(sum);
  const float lse = peak + log_sum;
  if (threadIdx.x == 0) {
    a.losses[row] = (peak - x_target) + log_sum + a.z_loss * lse * lse;
    a.lse[row] = lse;
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

template <class T>
__device__ __forceinline__ bool has_target(const CrossEntropy<T>& a, int32_t target) {
  return target != a.ignore_index && target >= 0 && target < a.vocab;
}

// Rows without a valid target: ignored (0) or out of range (NaN).
template <class T>
__device__ __forceinline__ void finish_row_without_target(const CrossEntropy<T>& a, int64_t row, T* x,
                                                          int32_t target) {
  if (a.gradient) zero_columns(x, 0, a.columns);
  if (threadIdx.x == 0) a.losses[row] = a.lse[row] = target == a.ignore_index ? 0.0f : NAN;
}

__device__ __forceinline__ float gradient_of(const RowGradient& g, float x, bool is_target) {
  return is_target ? g.target : exp_minus(x, g.peak) * g.coefficient;
}

// Blocks walk over the rows with a row in registers: kSlots vectors a thread and, in the first threads, one
// of the last vocab % kVec columns. kStaged: as soon as a row is in registers the next one is copied to
// shared memory (a thread copies what it will read: no barrier).
template <class T, bool kStaged>
__global__ void __launch_bounds__(kMaxThreads) resident_kernel(CrossEntropy<T> a) {
  wait_for_inputs();
  extern __shared__ uint4 staged[];
  __shared__ float shared_max[32];
  __shared__ float shared_sum[32];

  // A thread's vectors are 32 apart (a constant, so that one register addresses them all).
  const int tid = static_cast<int>(threadIdx.x);
  const int first = tid / 32 * (32 * kSlots) + tid % 32;
  const int rows = static_cast<int>(a.rows);
  const int vocab = static_cast<int>(a.vocab);
  const int vectors = vocab / kVec<T>;
  const int tail_column = vectors * kVec<T> + tid;
  const bool has_tail = tail_column < vocab;

  const auto stage = [&](int row) {
    const T* x = a.logits + row * a.row_stride + first * kVec<T>;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (first + 32 * s < vectors) copy16(staged + first + 32 * s, x + 32 * s * kVec<T>);
    }
    end_copies();
  };

  int row = static_cast<int>(blockIdx.x);
  int32_t next_target = a.targets[row];
  if constexpr (kStaged) stage(row);
  while (row < rows) {
    const int this_row = row;
    const int32_t target = next_target;
    const bool more = static_cast<int>(gridDim.x) < rows - row;
    row = more ? row + static_cast<int>(gridDim.x) : rows;
    if (more) next_target = a.targets[row];
    T* x = a.logits + this_row * a.row_stride;
    T* own = x + first * kVec<T>;
    const bool valid = has_target(a, target);
    const float x_target = valid ? to_float(x[target]) : 0.0f;

    uint4 kept[kSlots];
    if constexpr (kStaged) wait_copies<0>();
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      kept[s] = absent<T>();
      if (first + 32 * s < vectors) {
        kept[s] = kStaged ? staged[first + 32 * s] : *reinterpret_cast<const uint4*>(own + 32 * s * kVec<T>);
      }
    }
    const float tail = has_tail ? to_float(x[tail_column]) : -INFINITY;
    uint4 best = kept[0];
#pragma unroll
    for (int s = 1; s < kSlots; ++s) best = larger_elements<T>(best, kept[s]);
    float peak = tail;
#pragma unroll
    for (int k = 0; k < kVec<T>; ++k) peak = fmaxf(peak, element<T>(best, k));
    peak = block_max(peak, shared_max);
    if constexpr (kStaged) {
      if (more) stage(row);
    }
    if (!valid) {
      finish_row_without_target(a, this_row, x, target);
      __syncthreads();  // shared_max is written again
      continue;
    }

    float others = tail_column == target ? 0.0f : exp_minus(tail, peak);
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (first + 32 * s == target / kVec<T>) remove_element<T>(kept[s], target % kVec<T>);
#pragma unroll
      for (int k = 0; k < kVec<T>; ++k) others += exp_minus(element<T>(kept[s], k), peak);
      keep_registers(kept[s]);
    }
    others = block_sum(others, shared_sum);

    const RowGradient g = finish_row(a, this_row, peak, others, x_target);
    if (!a.gradient) continue;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (first + 32 * s < vectors) {
        float out[kVec<T>];
#pragma unroll
        for (int k = 0; k < kVec<T>; ++k) out[k] = exp_minus(element<T>(kept[s], k), peak) * g.coefficient;
        store_vec(own + 32 * s * kVec<T>, round_vec<T>(out));
      }
    }
    if (has_tail) x[tail_column] = from_float<T>(exp_minus(to_float(x[tail_column]), peak) * g.coefficient);
    // The thread that wrote the target's column, as one of its vectors or as the tail.
    const int ahead = target / kVec<T> - first;
    const bool mine = target < vectors * kVec<T> ? ahead % 32 == 0 && ahead >= 0 && ahead < 32 * kSlots
                                                 : target == tail_column;
    if (mine) x[target] = from_float<T>(g.target);
    zero_columns(x, a.vocab, a.columns);
  }
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
  const int64_t row = blockIdx.x;
  T* x = a.logits + row * a.row_stride;
  const int32_t target = a.targets[row];
  if (!has_target(a, target)) return finish_row_without_target(a, row, x, target);

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

  const RowGradient g = finish_row(a, row, peak, others, x_target);
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

CrossEntropyLaunch plan_cross_entropy(int64_t rows, int64_t vocab, int lanes, bool vectors,
                                      const DeviceLimits& limits) {
  constexpr int kMinThreads = 64;
  constexpr int kRegistersPerThread = 65536 / kMaxThreads;
  constexpr int kBlockOverhead = 1280;  // bytes: what the card keeps for itself, and the static arrays
  const int64_t needed = ceil_div<int64_t>(ceil_div<int64_t>(vocab / lanes, kSlots), 32) * 32;
  if (vectors && needed <= kMaxThreads) {
    CrossEntropyLaunch plan{.threads = static_cast<int>(std::max<int64_t>(needed, kMinThreads)),
                            .resident = true,
                            .vectors = true};
    const int64_t row_bytes = vocab / lanes * 16;
    plan.shared_bytes =
        row_bytes + kBlockOverhead <= limits.shared_bytes_per_block + 1024 ? static_cast<int>(row_bytes) : 0;
    const int residency =
        std::min({65536 / (plan.threads * kRegistersPerThread), limits.max_threads_per_sm / plan.threads,
                  (limits.shared_bytes_per_block + 1024) / (plan.shared_bytes + kBlockOverhead)});
    plan.blocks = std::min(rows, int64_t{limits.sm_count} * std::max(residency, 1));
    return plan;
  }
  // Two blocks a multiprocessor, so that one loads while the other waits at a barrier.
  const int half = limits.max_threads_per_sm / 2 / 32 * 32;
  return {.threads = std::clamp(half, kMinThreads, kMaxThreads),
          .blocks = rows,
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
  const CrossEntropyLaunch plan = plan_cross_entropy(args.rows, args.vocab, kVec<T>, vectors, limits);
  const auto blocks = static_cast<unsigned>(plan.blocks);
  if (plan.resident && plan.shared_bytes > 0) {
    allow_shared_memory(resident_kernel<T, true>, plan.shared_bytes);
    launch_kernel("cross_entropy", resident_kernel<T, true>, blocks, plan.threads,
                  static_cast<size_t>(plan.shared_bytes), stream, args);
  } else if (plan.resident) {
    launch_kernel("cross_entropy", resident_kernel<T, false>, blocks, plan.threads, 0, stream, args);
  } else if (plan.vectors) {
    launch_kernel("cross_entropy", streaming_kernel<T, kVec<T>>, blocks, plan.threads, 0, stream, args);
  } else {
    launch_kernel("cross_entropy", streaming_kernel<T, 1>, blocks, plan.threads, 0, stream, args);
  }
}

template void cross_entropy<float>(const CrossEntropy<float>&, const DeviceLimits&, Stream);
template void cross_entropy<__nv_bfloat16>(const CrossEntropy<__nv_bfloat16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
