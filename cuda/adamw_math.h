#pragma once
// The arithmetic of AdamW (Loshchilov and Hutter 2019, in the order of PyTorch's AdamW) on one element, and
// the roundings of a weight: shared by the kernel and its CPU twin, bit for bit.
#include <cfloat>

#include "cuda/dynamic_map.h"
#include "cuda/float_math.h"
#include "cuda/philox.h"
#include "cuda/step_state.h"

namespace narrowgauge::cuda {

// What stays the same for the whole run.
struct AdamWRules {
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
};

// The rules as fp32 factors; 1 - beta is taken before the rounding.
struct AdamWFactors {
  explicit AdamWFactors(const AdamWRules& rules)
      : beta1(static_cast<float>(rules.beta1)),
        gain1(static_cast<float>(1 - rules.beta1)),
        beta2(static_cast<float>(rules.beta2)),
        root_gain2(static_cast<float>(std::sqrt(1 - rules.beta2))),
        eps(static_cast<float>(rules.eps)),
        weight_decay(static_cast<float>(rules.weight_decay)) {}
  float beta1;
  float gain1;
  float beta2;
  float root_gain2;
  float eps;
  float weight_decay;
};

// One step's factors. Clipping is folded into the gains.
struct AdamWStep {
  float gain1;       // (1 - beta1) * clip
  float root_gain2;  // sqrt(1 - beta2) * clip
  float decay;       // 1 - lr * weight_decay
  float rate;        // lr / bias_correction1
  float correction;  // 1 / sqrt(bias_correction2)
};

NARROWGAUGE_HD AdamWStep adamw_step(const StepState& state, const AdamWFactors& factors) {
  const float lr = state.input.learning_rate;
  return {.gain1 = multiply(factors.gain1, state.clip_factor),
          .root_gain2 = multiply(factors.root_gain2, state.clip_factor),
          .decay = fused(-lr, factors.weight_decay, 1.0f),
          .rate = divide(lr, state.bias_correction1),
          .correction = divide(1.0f, square_root(state.bias_correction2))};
}

struct Moments {
  float m;
  float v;
};

// m' = m * keep_m + (1 - beta1) g and v' = v * keep_v + (1 - beta2) g^2 for the clipped gradient; keep is
// beta times the scale of a quantised state. v' must then be capped at FLT_MAX, so that a huge gradient does
// not freeze a weight.
NARROWGAUGE_HD Moments next_moments(float g, Moments old, float keep_m, float keep_v, const AdamWStep& step) {
  const float root = multiply(step.root_gain2, g);
  return {.m = fused(old.m, keep_m, multiply(step.gain1, g)),
          .v = fused(root, root, multiply(old.v, keep_v))};
}

// p * decay - rate * m / (sqrt(v) * correction + eps). Below kSmallestRoot v counts as that.
NARROWGAUGE_HD float next_weight(float p, Moments x, float decay, float eps, const AdamWStep& step) {
  const float denominator = fused(square_root(larger(x.v, kSmallestRoot)), step.correction, eps);
  return fused(-step.rate, multiply(x.m, reciprocal(denominator)), multiply(p, decay));
}

// The scale that a block with this largest magnitude stores, and what its values are multiplied by in
// encoding. A block below the normal numbers becomes zero; values beyond kLargestScale must be cut to it.
inline constexpr float kLargestScale = 0x1p126f;
struct BlockScale {
  float scale;
  float inverse;
};
NARROWGAUGE_HD BlockScale block_scale(float largest) {
  const float scale = smaller(largest, kLargestScale);
  return largest >= FLT_MIN ? BlockScale{scale, reciprocal(scale)} : BlockScale{0.0f, 0.0f};
}

// --- roundings of an fp32 weight to the upper 16 bits, bf16 ---

// Stochastic: up with the probability of the part cut off, for 16 uniform random bits. Representable values,
// Inf and NaN stay; a finite value never becomes Inf.
inline constexpr uint32_t kLargestBf16 = 0x7f7f0000u;  // the bits of the largest finite bf16, as fp32
NARROWGAUGE_HD uint32_t bf16_stochastic(float x, uint32_t random16) {
  const uint32_t bits = float_bits(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= kLargestBf16) return (bits >> 16) | (magnitude > 0x7f800000u ? 0x40u : 0u);
  return (bits + random16) >> 16;
}

// To nearest, ties to even.
NARROWGAUGE_HD uint32_t bf16_nearest(float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// An fp32 master as a bf16 weight (to nearest, ties away from zero) and the signed difference of the bit
// patterns. Joining is exact for all 2^32 pairs. NaN must come in the form that `quiet` gives, or its weight
// is not a NaN.
struct SplitMaster {
  uint32_t weight;    // 16 bits
  int32_t remainder;  // int16
};
NARROWGAUGE_HD SplitMaster split_master(float master) {
  const uint32_t bits = float_bits(master);
  const uint32_t weight = (bits + 0x8000u) >> 16;
  return {weight & 0xffffu, static_cast<int32_t>(bits - (weight << 16))};
}
NARROWGAUGE_HD float join_master(uint32_t weight, int32_t remainder) {
  return bits_float((weight << 16) + static_cast<uint32_t>(remainder));
}
NARROWGAUGE_HD float quiet(float x) { return x == x ? x : bits_float(0x7fc00000u); }

// 8 x 16 random bits for elements [8 group, 8 group + 8) of the flat weight buffer.
NARROWGAUGE_HD Random128 rounding_bits(const StepInput& input, int64_t group) {
  return philox<7>(input.seed, static_cast<uint64_t>(group), input.step);
}
NARROWGAUGE_HD uint32_t random16(const Random128& random, int element) {
  return (random.word[element / 2] >> (16 * (element % 2))) & 0xffffu;
}

}  // namespace narrowgauge::cuda
