#pragma once
// The 8-bit dynamic maps of Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization": 256 sorted
// values in [-1, 1] (signed) or [0, 1] (unsigned). Decade i of seven has the scale s = 10^(i - 6) and holds
// the midpoints of n equal cells of [0.1 s, s], n = 2^i (and as many negative ones) or 2^(i + 1); beside them
// 0 and 1.
//
// Encoding is direct: a value's exponent names its segment (a decade, or one of the constants at the ends),
// and in a segment the index of the nearest entry is a linear function, rounded and capped.
#include <cstdint>

#include "cuda/float_math.h"

namespace narrowgauge::cuda {

struct MapSegment {
  float slope;
  float offset;
  float limit;
  float unused;
};

// The octave of an exponent lies in `segment` up to `boundary`, and in the next segment from there on.
struct MapOctave {
  float boundary;
  uint32_t segment;
};

inline constexpr int kMapSegments = 10;  // zero, smallest, seven decades, one
inline constexpr int kSignedZero = 127;  // the code of 0 in the signed map; 0 in the unsigned one

struct alignas(16) DynamicMap {
  float values[256];
  MapOctave octaves[256];  // by the exponent bits of a non-negative float
  MapSegment segments[kMapSegments];
};

namespace detail {

inline constexpr double kDecades[7] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0};

constexpr double map_entry(int decade, int entries, int k) {
  return kDecades[decade] * (0.1 + 0.9 * (k + 0.5) / entries);
}

// `first` is the number of entries in the lowest decade, `zero_index` the index of its first entry less one
// step below the formula's 2^i: an entry k of decade i has index first * 2^i + k + shift. The boundary of two
// segments is the midpoint of the entries on both sides.
constexpr void fill_segments(DynamicMap& map, int first, int shift, int smallest, int one) {
  double boundaries[kMapSegments - 1] = {0x1p-126};
  map.segments[0] = {0, 0, 0, 0};
  map.segments[1] = {0, static_cast<float>(smallest), static_cast<float>(smallest), 0};
  map.segments[kMapSegments - 1] = {0, static_cast<float>(one), static_cast<float>(one), 0};
  double below = 0;
  for (int i = 0; i < 7; ++i) {
    const int n = first << i;
    boundaries[i + 1] = 0.5 * (below + map_entry(i, n, 0));
    below = map_entry(i, n, n - 1);
    map.segments[i + 2] = {static_cast<float>(n / (0.9 * kDecades[i])),
                           static_cast<float>(n - n / 9.0 - 0.5 + shift),
                           static_cast<float>(2 * n - 1 + shift), 0};
  }
  boundaries[8] = 0.5 * (below + 1.0);
  double octave = 0x1p-127;
  for (int exponent = 0; exponent < 256; ++exponent, octave *= 2) {
    uint32_t segment = 0;
    while (segment < kMapSegments - 1 && exponent > 0 && boundaries[segment] <= octave) ++segment;
    const bool has_boundary = exponent > 0 && segment < kMapSegments - 1 && boundaries[segment] < 2 * octave;
    map.octaves[exponent] = {has_boundary ? static_cast<float>(boundaries[segment]) : __builtin_inff(),
                             segment};
  }
}

}  // namespace detail

// For m. Codes 0..126 are negative (there is no -1), 127 is zero, 255 is 1.
constexpr DynamicMap make_signed_map() {
  DynamicMap map{};
  for (int i = 0; i < 7; ++i) {
    const int n = 1 << i;
    for (int k = 0; k < n; ++k) {
      const float value = static_cast<float>(detail::map_entry(i, n, k));
      map.values[kSignedZero + n + k] = value;
      map.values[kSignedZero - n - k] = -value;
    }
  }
  map.values[255] = 1;
  detail::fill_segments(map, 1, 0, 0, 128);
  return map;
}

// For v. Encoding never turns a positive value into 0: what lies below the smallest entry becomes that entry,
// since sqrt(v) = 0 beside m > 0 would make the next update almost unbounded.
constexpr DynamicMap make_unsigned_map() {
  DynamicMap map{};
  for (int i = 0; i < 7; ++i) {
    const int n = 2 << i;
    for (int k = 0; k < n; ++k) map.values[n + k - 1] = static_cast<float>(detail::map_entry(i, n, k));
  }
  map.values[255] = 1;
  detail::fill_segments(map, 2, -1, 1, 255);
  return map;
}

// Steps from the code of zero to that of the entry nearest to x >= 0, before rounding to a whole number.
NARROWGAUGE_HD float map_steps(const DynamicMap& map, float x) {
  const MapOctave octave = map.octaves[float_bits(x) >> 23];
  const MapSegment segment = map.segments[octave.segment + (x >= octave.boundary ? 1u : 0u)];
  return smaller(fused(x, segment.slope, segment.offset), segment.limit);
}

// The code in the low byte; the bits above are not zero. x in [-1, 1]. (Adding 2^23 rounds to a whole
// number.)
NARROWGAUGE_HD uint32_t encode_signed(const DynamicMap& map, float x) {
  const uint32_t sign = float_bits(x) & 0x80000000u;
  const float steps = map_steps(map, bits_float(float_bits(x) ^ sign));
  const float signed_steps = larger(bits_float(float_bits(steps) | sign), -127.0f);
  return float_bits(add(signed_steps, 8388608.0f + kSignedZero));
}

// The same for x in [0, 1].
NARROWGAUGE_HD uint32_t encode_unsigned(const DynamicMap& map, float x) {
  return float_bits(add(map_steps(map, x), 8388608.0f));
}

}  // namespace narrowgauge::cuda
