#pragma once
// AdamW with 8-bit block-wise states (Dettmers et al. 2022) over a whole flat weight buffer in one launch.
#include <cstdint>

#include "cuda/adamw_math.h"
#include "cuda/device_limits.h"
#include "cuda/step_state.h"
#include "cuda/stream.h"

namespace narrowgauge::cuda {

// Elements that share a scale, and the multiple of which every range begins and ends at.
inline constexpr int64_t kAdamWBlock = 256;
inline constexpr int kMaxAdamWRanges = 16;

// One run of elements that is updated alike. All numbers count elements and are multiples of kAdamWBlock.
struct AdamWRange {
  int64_t begin;  // in the weights, the remainder and the master
  int64_t end;
  int64_t grad_begin;   // where the range starts in `grad` or `grad32`
  int64_t state_begin;  // where it starts in the codes (scales: / kAdamWBlock) or in the fp32 states
  bool grad_is_low;     // true: `grad`; false: `grad32`
  bool eight_bit;       // 8-bit states, else fp32
  bool decay;           // weight decay applies
};

enum class Master {
  none,        // fp32 weights, which are their own master
  stochastic,  // bf16 weights, rounded stochastically
  split,       // bf16 weights and an int16 remainder: an exact fp32 master
  fp32,        // bf16 weights rounded from an fp32 master
};

// T: weights; G: the low gradient buffer. Buffers that no range and no master mode uses may be null.
template <class T, class G>
struct AdamW {
  T* weights;              // (count)
  int16_t* remainder;      // (count), Master::split
  float* master;           // (count), Master::fp32
  const G* grad;           // (grad_count)
  const float* grad32;     // (grad32_count)
  uint8_t* m_codes;        // (code_count)
  uint8_t* v_codes;        // (code_count)
  float* m_scales;         // (code_count / kAdamWBlock)
  float* v_scales;         // (code_count / kAdamWBlock)
  float* m32;              // (state32_count)
  float* v32;              // (state32_count)
  const StepState* state;  // rate, corrections, clip factor, seed and step; skip: nothing is written
  int64_t count;
  int64_t grad_count;
  int64_t grad32_count;
  int64_t code_count;
  int64_t state32_count;
  AdamWRules rules;
  Master master_mode;                  // none exactly when T is float
  AdamWRange ranges[kMaxAdamWRanges];  // must not overlap
  int range_count;
};

struct AdamWLaunch {
  int threads;
  int blocks;
};

// Pure function of the card's limits: what `adamw` launches for this many elements, one warp a block of 256.
AdamWLaunch plan_adamw(int64_t elements, const DeviceLimits& limits);

// Asynchronous on `stream`. T, G: float, bf16. The result depends neither on the limits nor on how ranges are
// cut. Throws LaunchError (null or unaligned pointer, a range that is unaligned or outside a buffer, a master
// mode that does not fit T) before the launch and CudaError after it.
template <class T, class G>
void adamw(const AdamW<T, G>& args, const DeviceLimits& limits, Stream stream);

}  // namespace narrowgauge::cuda
