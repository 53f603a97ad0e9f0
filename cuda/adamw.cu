#include "cuda/adamw.h"

#include <algorithm>

#include "cuda/launch.cuh"
#include "cuda/vec.cuh"

namespace narrowgauge::cuda {
namespace {

constexpr int kThreads = 1024;  // one thread block a multiprocessor, 64 registers a thread
constexpr int kWarps = kThreads / 32;
constexpr int kLane = 8;  // elements of one lane: 32 lanes cover a block
// So that the index of a block, and one stride more, is an int.
constexpr int64_t kMaxElements = int64_t{1} << 38;

__device__ const SignedMap kSignedMap = make_signed_map();
__device__ const UnsignedMap kUnsignedMap = make_unsigned_map();

// The maps in shared memory. Every lane decodes from values of its own, in a memory bank of its own.
struct Tables {
  float m_values[256][32];
  float v_values[256][32];
  uint32_t m_cells[SignedMap::kCellCount];
  uint32_t v_cells[UnsignedMap::kCellCount];
};
static_assert(sizeof(Tables) <= 99 * 1024);

__device__ void fill(Tables& tables) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int i = thread; i < 256 * 32; i += kThreads) {
    (&tables.m_values[0][0])[i] = kSignedMap.values[i / 32];
    (&tables.v_values[0][0])[i] = kUnsignedMap.values[i / 32];
  }
#pragma unroll 1
  for (int i = thread; i < SignedMap::kCellCount; i += kThreads) tables.m_cells[i] = kSignedMap.cells[i];
#pragma unroll 1
  for (int i = thread; i < UnsignedMap::kCellCount; i += kThreads) tables.v_cells[i] = kUnsignedMap.cells[i];
  __syncthreads();
}

// A range as the kernel walks it. The blocks of all ranges are numbered in one row; a pointer is to where
// element 0 of block 0 would lie, so that block b is 256 b elements (or b scales) further on.
struct Walk {
  char* weights;
  char* remainder;
  char* master;
  char* grad;
  char* m;  // codes or fp32 values
  char* v;
  char* m_scales;
  char* v_scales;
  int64_t weight_shift;  // element of the weights where block 0 would begin
  int end_block;         // first block after this range
  bool grad_is_low;
  bool eight_bit;
  bool decay;
};

// The address of element `index` from a pointer in a Walk.
template <class T>
__device__ __forceinline__ T* at(char* base, int64_t index) {
  return reinterpret_cast<T*>(base + index * static_cast<int64_t>(sizeof(T)));
}

struct Arguments {
  const StepState* state;
  AdamWFactors factors;
  int range_count;
  Walk walks[kMaxAdamWRanges];
};

template <class T>
__device__ __forceinline__ void load8(const T* p, float (&x)[kLane]) {
#pragma unroll
  for (int i = 0; i < kLane; i += kVec<T>) {
    float part[kVec<T>];
    widen(part, load_vec(p + i));
#pragma unroll
    for (int j = 0; j < kVec<T>; ++j) x[i + j] = part[j];
  }
}

__device__ __forceinline__ void store8(float* p, const float (&x)[kLane]) {
#pragma unroll
  for (int i = 0; i < kLane; i += kVec<float>) {
    Vec<float> vec;
#pragma unroll
    for (int j = 0; j < kVec<float>; ++j) vec.v[j] = x[i + j];
    store_vec(p + i, vec);
  }
}

// 16 bits of each of x[0..7], as 16 bytes: the low ones for kBytes = 0x5410, the high ones for 0x7632.
template <unsigned kBytes>
__device__ __forceinline__ void store8_halves(void* p, const uint32_t (&x)[kLane]) {
  *reinterpret_cast<uint4*>(p) = make_uint4(__byte_perm(x[0], x[1], kBytes), __byte_perm(x[2], x[3], kBytes),
                                            __byte_perm(x[4], x[5], kBytes), __byte_perm(x[6], x[7], kBytes));
}

// Bits 16 to 23 of four words.
__device__ __forceinline__ uint32_t pack_codes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0062), __byte_perm(c, d, 0x0062), 0x5410);
}

__device__ __forceinline__ uint2 load_codes(const uint8_t* p) { return *reinterpret_cast<const uint2*>(p); }
__device__ __forceinline__ void store_codes(uint8_t* p, const uint32_t (&x)[kLane]) {
  *reinterpret_cast<uint2*>(p) =
      make_uint2(pack_codes(x[0], x[1], x[2], x[3]), pack_codes(x[4], x[5], x[6], x[7]));
}
__device__ __forceinline__ uint32_t code(uint2 codes, int i) {
  return __byte_perm(i < 4 ? codes.x : codes.y, 0, 0x4440u + static_cast<unsigned>(i % 4));
}

// Largest of non-negative floats over a warp: their bit patterns are ordered alike.
__device__ __forceinline__ float warp_largest(float x) {
  return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(x)));
}

// --- the fp32 value of eight weights, whatever holds it ---

template <Master kMaster, class T>
__device__ __forceinline__ void load_weights(const Walk& range, int64_t position, float (&p)[kLane]) {
  if constexpr (kMaster == Master::fp32) {
    load8(at<const float>(range.master, position), p);
  } else {
    load8(at<const T>(range.weights, position), p);
  }
  if constexpr (kMaster == Master::split) {
    const uint4 packed = *reinterpret_cast<const uint4*>(at<int16_t>(range.remainder, position));
    const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      const auto remainder = static_cast<int16_t>(words[i / 2] >> (16 * (i % 2)));
      p[i] = join_master(float_bits(p[i]) >> 16, remainder);
    }
  }
}

// |x|, or the largest so far; NaN stays.
__device__ __forceinline__ float largest_or_nan(float largest, float x) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(largest), "f"(fabsf(x)));
  return result;
}

template <Master kMaster, class T>
__device__ __forceinline__ void store_weights(const Walk& range, const StepInput& input, int64_t position,
                                              const float (&p)[kLane]) {
  T* weights = at<T>(range.weights, position);
  if constexpr (kMaster == Master::none) {
    store8(weights, p);
  } else if constexpr (kMaster == Master::stochastic) {
    const Random128 random = rounding_bits(input, (position + range.weight_shift) / kLane);
    uint32_t weight[kLane];  // in the upper half
    float largest = 0;
#pragma unroll
    for (int i = 0; i < kLane; ++i) largest = largest_or_nan(largest, p[i]);
#pragma unroll
    for (int i = 0; i < kLane; ++i) weight[i] = float_bits(p[i]) + random16(random, i);
    if (!(largest < bits_float(kLargestBf16))) {
#pragma unroll
      for (int i = 0; i < kLane; ++i) weight[i] = bf16_stochastic(p[i], random16(random, i)) << 16;
    }
    store8_halves<0x7632>(weights, weight);
  } else if constexpr (kMaster == Master::split) {
    uint32_t weight[kLane];  // in the upper half
    uint32_t remainder[kLane];
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      remainder[i] = float_bits(quiet(p[i]));  // the low half is the difference of the bit patterns
      weight[i] = remainder[i] + 0x8000u;
    }
    store8_halves<0x5410>(at<int16_t>(range.remainder, position), remainder);
    store8_halves<0x7632>(weights, weight);
  } else {
    uint32_t weight[kLane];
#pragma unroll
    for (int i = 0; i < kLane; ++i) weight[i] = bf16_nearest(p[i]);
    store8(at<float>(range.master, position), p);
    store8_halves<0x5410>(weights, weight);
  }
}

// Opaque to the compiler: x stays in a register, where it would be an immediate operand of one more
// instruction.
__device__ __forceinline__ uint32_t in_register(uint32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Loads from the tables by 32-bit address, which saves an addition.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address));
  return x;
}

// This lane's columns of the values, and the cells, as shared addresses; cell 0 is that of key 0.
struct TableAddresses {
  __device__ explicit TableAddresses(const Tables& tables, int lane)
      : values(shared_address(&tables.m_values[0][lane])),
        cells(shared_address(tables.m_cells) - 4 * kFirstCell) {}
  __device__ __forceinline__ float m(uint32_t code) const {
    return bits_float(load_shared(values + 128 * code));
  }
  __device__ __forceinline__ float v(uint32_t code) const {
    return bits_float(load_shared(values + 128 * code + sizeof(Tables::m_values)));
  }
  // The code of a key in bits 16 to 23; the others are not zero.
  __device__ __forceinline__ uint32_t encode_m(uint32_t key) const {
    return key + load_shared(cells + 4 * __byte_perm(key, 0, 0x4432));
  }
  __device__ __forceinline__ uint32_t encode_v(uint32_t key) const {
    return key + load_shared(cells + 4 * __byte_perm(key, 0, 0x4432) + sizeof(Tables::m_cells));
  }
  uint32_t values;
  uint32_t cells;
};

// What the moments of a lane's elements in a block of 8-bit states follow from, as it lies in memory.
template <class G>
struct Quantised {
  __device__ __forceinline__ Quantised(const Walk& range, int block, int64_t position)
      : m_codes(load_codes(at<uint8_t>(range.m, position))),
        v_codes(load_codes(at<uint8_t>(range.v, position))),
        m_scale(*at<float>(range.m_scales, block)),
        v_scale(*at<float>(range.v_scales, block)) {
#pragma unroll
    for (int i = 0; i < kLane / kVec<G>; ++i) {
      grad[i] = *reinterpret_cast<const uint4*>(at<const G>(range.grad, position + i * kVec<G>));
    }
  }
  __device__ __forceinline__ void widen_grad(float (&g)[kLane]) const {
#pragma unroll
    for (int i = 0; i < kLane / kVec<G>; ++i) {
      float part[kVec<G>];
      widen(part, reinterpret_cast<const Vec<G>&>(grad[i]));
#pragma unroll
      for (int j = 0; j < kVec<G>; ++j) g[i * kVec<G> + j] = part[j];
    }
  }
  uint4 grad[kLane / kVec<G>];
  uint2 m_codes;
  uint2 v_codes;
  float m_scale;
  float v_scale;
};

// Updates the blocks of a range with 8-bit states from `block` on, `warps` apart; returns the next one,
// beyond the range. What the moments of a block need is loaded while the weights of the block before are
// updated, when registers are free, so that the warp does not wait for it.
template <Master kMaster, class T, class G>
__device__ __forceinline__ int update_quantised(const Walk& range, const AdamWFactors& factors,
                                                const AdamWStep& step, const StepInput& input,
                                                const Tables& tables, int block, int warps) {
  if (block >= range.end_block) return block;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float decay = range.decay ? step.decay : 1.0f;
  const TableAddresses table(tables, lane);
  const uint32_t offset = in_register(float_bits(kMapOffset));
  Quantised<G> quantised(range, block, block * kAdamWBlock + lane * kLane);
  while (true) {
    const int64_t position = block * kAdamWBlock + lane * kLane;
    float p[kLane];
    float g[kLane];
    Moments x[kLane];
    load_weights<kMaster, T>(range, position, p);
    quantised.widen_grad(g);
    const float keep_m = multiply(factors.beta1, quantised.m_scale);
    const float keep_v = multiply(factors.beta2, quantised.v_scale);
    float largest_m = 0;
    float largest_v = 0;
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      const Moments old = {table.m(code(quantised.m_codes, i)), table.v(code(quantised.v_codes, i))};
      x[i] = next_moments(g[i], old, keep_m, keep_v, step);
      largest_m = fmaxf(largest_m, fabsf(x[i].m));
      largest_v = fmaxf(largest_v, x[i].v);
    }
    largest_m = warp_largest(largest_m);
    largest_v = warp_largest(largest_v);
    const BlockScale scale_m = block_scale(largest_m);
    const BlockScale scale_v = block_scale(largest_v);
    uint32_t codes[kLane];
    if (largest_m <= kLargestScale && largest_v <= kLargestScale) {
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        codes[i] = table.encode_m(signed_key(x[i].m, scale_m.inverse, offset));
      }
      store_codes(at<uint8_t>(range.m, position), codes);
#pragma unroll
      for (int i = 0; i < kLane; ++i) codes[i] = table.encode_v(unsigned_key(x[i].v, scale_v.inverse));
      store_codes(at<uint8_t>(range.v, position), codes);
    } else {  // a key outside the table must not be looked up, whatever the state was
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        const float m = fmaxf(fminf(x[i].m, kLargestScale), -kLargestScale);
        codes[i] = table.encode_m(signed_key(m, scale_m.inverse, offset));
      }
      store_codes(at<uint8_t>(range.m, position), codes);
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        codes[i] = table.encode_v(unsigned_key(fminf(x[i].v, kLargestScale), scale_v.inverse));
        x[i].v = fminf(x[i].v, FLT_MAX);
      }
      store_codes(at<uint8_t>(range.v, position), codes);
    }
    if (lane == 0) {
      *at<float>(range.m_scales, block) = scale_m.scale;
      *at<float>(range.v_scales, block) = scale_v.scale;
    }
    const int next = block + warps;
    const int fetched = next < range.end_block ? next : block;  // without a branch, which costs registers
    quantised = Quantised<G>(range, fetched, fetched * kAdamWBlock + lane * kLane);
#pragma unroll
    for (int i = 0; i < kLane; ++i) p[i] = next_weight(p[i], x[i], decay, factors.eps, step);
    store_weights<kMaster, T>(range, input, position, p);
    block = next;
    if (block >= range.end_block) return block;
  }
}

// The same for a range with fp32 states.
template <Master kMaster, class T, class G>
__device__ __forceinline__ int update_fp32(const Walk& range, const AdamWFactors& factors,
                                           const AdamWStep& step, const StepInput& input, int block,
                                           int warps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float decay = range.decay ? step.decay : 1.0f;
#pragma unroll 1
  for (; block < range.end_block; block += warps) {
    const int64_t position = block * kAdamWBlock + lane * kLane;
    float p[kLane];
    float g[kLane];
    float m[kLane];
    float v[kLane];
    load8(at<const G>(range.grad, position), g);
    load_weights<kMaster, T>(range, position, p);
    load8(at<const float>(range.m, position), m);
    load8(at<const float>(range.v, position), v);
#pragma unroll
    for (int i = 0; i < kLane; ++i) {
      Moments x = next_moments(g[i], {m[i], v[i]}, factors.beta1, factors.beta2, step);
      x.v = fminf(x.v, FLT_MAX);
      m[i] = x.m;
      v[i] = x.v;
      p[i] = next_weight(p[i], x, decay, factors.eps, step);
    }
    store8(at<float>(range.m, position), m);
    store8(at<float>(range.v, position), v);
    store_weights<kMaster, T>(range, input, position, p);
  }
  return block;
}

template <Master kMaster, class T, class G>
__global__ void __launch_bounds__(kThreads, 1) adamw_kernel(const __grid_constant__ Arguments arguments) {
  wait_for_inputs();
  extern __shared__ uint4 shared[];
  Tables& tables = *reinterpret_cast<Tables*>(shared);
  if (arguments.state->skip != 0) return;
  fill(tables);
  const AdamWFactors& factors = arguments.factors;
  const AdamWStep step = adamw_step(*arguments.state, factors);
  const StepInput input = arguments.state->input;
  const int warps = static_cast<int>(gridDim.x) * kWarps;
  int block = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
#pragma unroll 1
  for (int r = 0; r < arguments.range_count; ++r) {
    const Walk& range = arguments.walks[r];
    const auto update = [&]<class Grad>(Grad) {
      block = range.eight_bit
                  ? update_quantised<kMaster, T, Grad>(range, factors, step, input, tables, block, warps)
                  : update_fp32<kMaster, T, Grad>(range, factors, step, input, block, warps);
    };
    range.grad_is_low ? update(G{}) : update(0.0f);
  }
}

void require_range(const AdamWRange& range, int64_t count, int64_t grad_count, int64_t state_count) {
  const auto aligned = [](int64_t x) { return x >= 0 && x % kAdamWBlock == 0; };
  require(
      aligned(range.begin) && aligned(range.end) && aligned(range.grad_begin) && aligned(range.state_begin),
      "adamw: a range does not begin and end at multiples of 256");
  const int64_t length = range.end - range.begin;
  require(length >= 0 && range.end <= count, "adamw: a range lies outside the weights");
  require(length <= grad_count - range.grad_begin, "adamw: a range lies outside its gradient buffer");
  require(length <= state_count - range.state_begin, "adamw: a range lies outside its state buffers");
}

void require_buffer(const void* pointer, int64_t count, const char* message) {
  require((count == 0 || pointer != nullptr) && aligned16(pointer), message);
}

template <Master kMaster, class T, class G>
void launch(const Arguments& arguments, const AdamWLaunch& plan, Stream stream) {
  constexpr int kBytes = static_cast<int>(sizeof(Tables));
  allow_shared_memory(adamw_kernel<kMaster, T, G>, kBytes);
  launch_kernel("adamw", adamw_kernel<kMaster, T, G>, plan.blocks, plan.threads, kBytes, stream, arguments);
}

}  // namespace

AdamWLaunch plan_adamw(int64_t elements, const DeviceLimits& limits) {
  const int64_t needed = ceil_div(ceil_div(elements, kAdamWBlock), int64_t{kWarps});
  const int64_t resident = std::max(int64_t{limits.sm_count}, int64_t{1});
  return {.threads = kThreads, .blocks = static_cast<int>(std::min(needed, resident))};
}

template <class T, class G>
void adamw(const AdamW<T, G>& args, const DeviceLimits& limits, Stream stream) {
  constexpr bool kOwnMaster = std::is_same_v<T, float>;
  require(args.range_count >= 0 && args.range_count <= kMaxAdamWRanges, "adamw: more than 16 ranges");
  require(args.state != nullptr, "adamw: null state");
  require((args.master_mode == Master::none) == kOwnMaster,
          "adamw: the master mode does not fit the weights");
  constexpr const char* kBuffer = "adamw: a buffer is null or not 16-byte aligned";
  require_buffer(args.weights, args.count, kBuffer);
  require_buffer(args.remainder, args.master_mode == Master::split ? args.count : 0, kBuffer);
  require_buffer(args.master, args.master_mode == Master::fp32 ? args.count : 0, kBuffer);
  require_buffer(args.grad, args.grad_count, kBuffer);
  require_buffer(args.grad32, args.grad32_count, kBuffer);
  for (const void* p : {static_cast<const void*>(args.m_codes), static_cast<const void*>(args.v_codes),
                        static_cast<const void*>(args.m_scales), static_cast<const void*>(args.v_scales)}) {
    require_buffer(p, args.code_count, kBuffer);
  }
  require_buffer(args.m32, args.state32_count, kBuffer);
  require_buffer(args.v32, args.state32_count, kBuffer);

  Arguments arguments{
      .state = args.state, .factors = AdamWFactors(args.rules), .range_count = args.range_count, .walks = {}};
  int64_t elements = 0;
  for (int r = 0; r < args.range_count; ++r) {
    const AdamWRange& range = args.ranges[r];
    require_range(range, args.count, range.grad_is_low ? args.grad_count : args.grad32_count,
                  range.eight_bit ? args.code_count : args.state32_count);
    const int64_t before = elements;
    elements += range.end - range.begin;
    require(elements < kMaxElements, "adamw: more than 2^38 elements");
    // The pointer may lie outside its buffer; it is moved as a number.
    const auto shifted = [](const auto* pointer, int64_t shift) {
      return reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(pointer) +
                                     static_cast<std::uintptr_t>(shift) * sizeof(*pointer));
    };
    const int64_t weights = range.begin - before;
    const int64_t grad = range.grad_begin - before;
    const int64_t state = range.state_begin - before;
    arguments.walks[r] = {.weights = shifted(args.weights, weights),
                          .remainder = shifted(args.remainder, weights),
                          .master = shifted(args.master, weights),
                          .grad = range.grad_is_low ? shifted(args.grad, grad) : shifted(args.grad32, grad),
                          .m = range.eight_bit ? shifted(args.m_codes, state) : shifted(args.m32, state),
                          .v = range.eight_bit ? shifted(args.v_codes, state) : shifted(args.v32, state),
                          .m_scales = shifted(args.m_scales, state / kAdamWBlock),
                          .v_scales = shifted(args.v_scales, state / kAdamWBlock),
                          .weight_shift = weights,
                          .end_block = static_cast<int>(elements / kAdamWBlock),
                          .grad_is_low = range.grad_is_low,
                          .eight_bit = range.eight_bit,
                          .decay = range.decay};
  }
  if (elements == 0) return;
  const AdamWLaunch plan = plan_adamw(elements, limits);
  if constexpr (kOwnMaster) {
    launch<Master::none, T, G>(arguments, plan, stream);
  } else if (args.master_mode == Master::stochastic) {
    launch<Master::stochastic, T, G>(arguments, plan, stream);
  } else if (args.master_mode == Master::split) {
    launch<Master::split, T, G>(arguments, plan, stream);
  } else {
    launch<Master::fp32, T, G>(arguments, plan, stream);
  }
}

template void adamw(const AdamW<float, float>&, const DeviceLimits&, Stream);
template void adamw(const AdamW<float, bf16>&, const DeviceLimits&, Stream);
template void adamw(const AdamW<bf16, float>&, const DeviceLimits&, Stream);
template void adamw(const AdamW<bf16, bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
