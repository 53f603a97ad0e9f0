#pragma once
// The 8-bit dynamic maps of Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization": 256 sorted
// values in [-1, 1] (signed) or [0, 1] (unsigned). Decade i of seven has the scale s = 10^(i - 6) and holds
// the midpoints of n equal cells of [0.1 s, s], n = 2^i (and as many negative ones) or 2^(i + 1); beside them
// 0 and 1.
//
// Encoding to the nearest entry is one lookup. A value x becomes y = x + kMapOffset (away from zero), whose
// bits, all flipped where y is negative, are its key. The upper 16 bits of a key name a cell, so narrow that
// at most one code begins inside it; adding the cell's word to the key puts the code into bits 16 to 23.
#include <bit>
#include <cstdint>

#include "cuda/float_math.h"

namespace narrowgauge::cuda {

inline constexpr int kSignedZero = 127;  // the code of 0 in the signed map; 0 in the unsigned one
inline constexpr float kMapOffset = 0x1p-20f;
inline constexpr uint32_t kFirstCell = 107u << 7;  // of kMapOffset

// kCells: those of all keys of [-1, 1] or [0, 1], rounded up to a multiple of 4.
template <int kCells>
struct alignas(16) DynamicMap {
  static constexpr int kCellCount = kCells;
  float values[256];
  uint32_t cells[kCells];
};
using SignedMap = DynamicMap<42 * 128>;
using UnsignedMap = DynamicMap<20 * 128 + 4>;

namespace detail {

inline constexpr double kDecades[7] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0};

constexpr double map_entry(int decade, int entries, int k) {
  return kDecades[decade] * (0.1 + 0.9 * (k + 0.5) / entries);
}

// The key of x, except that a negative x must lie further from 0 than half of kMapOffset's last place.
constexpr uint32_t map_key(double x) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(x < 0 ? x - kMapOffset : x + kMapOffset));
  return x < 0 ? ~bits : bits;
}

// Words for cells [first, last) whose lowest key has the code `code`; first_keys[c] is the least key of code
// c.
template <int kCells>
constexpr void fill_cells(DynamicMap<kCells>& map, const uint32_t (&first_keys)[256], int first, int last,
                          uint32_t code) {
  for (int i = first; i < last; ++i) {
    const uint32_t cell = kFirstCell + static_cast<uint32_t>(i);
    while (code < 255 && first_keys[code + 1] <= cell << 16) ++code;
    uint32_t word = (code - cell) << 16;
    if (code < 255 && first_keys[code + 1] >> 16 == cell) word += 0x10000u - (first_keys[code + 1] & 0xffffu);
    map.cells[i] = word;
  }
}

}  // namespace detail

// For m. Codes 0..126 are negative (there is no -1), 127 is zero, 255 is 1.
constexpr SignedMap make_signed_map() {
  SignedMap map{};
  double entries[256] = {};
  for (int i = 0; i < 7; ++i) {
    const int n = 1 << i;
    for (int k = 0; k < n; ++k) {
      entries[kSignedZero + n + k] = detail::map_entry(i, n, k);
      entries[kSignedZero - n - k] = -detail::map_entry(i, n, k);
    }
  }
  entries[255] = 1;
  uint32_t first_keys[256] = {};
  for (int c = 0; c < 256; ++c) {
    map.values[c] = static_cast<float>(entries[c]);
    if (c > 0) first_keys[c] = detail::map_key(0.5 * (entries[c - 1] + entries[c]));
  }
  // Positive keys come first, then negative ones; their codes end at that of zero.
  constexpr int kPositive = 21 * 128;
  detail::fill_cells(map, first_keys, 0, kPositive, kSignedZero);
  for (int c = kSignedZero + 1; c < 256; ++c) first_keys[c] = 0xffffffffu;
  detail::fill_cells(map, first_keys, kPositive, SignedMap::kCellCount, 0);
  return map;
}

// For v. Encoding never turns a positive value into 0: what lies below the smallest entry becomes that entry,
// since sqrt(v) = 0 beside m > 0 would make the next update almost unbounded.
constexpr UnsignedMap make_unsigned_map() {
  UnsignedMap map{};
  double entries[256] = {};
  for (int i = 0; i < 7; ++i) {
    const int n = 2 << i;
    for (int k = 0; k < n; ++k) entries[n + k - 1] = detail::map_entry(i, n, k);
  }
  entries[255] = 1;
  uint32_t first_keys[256] = {};
  for (int c = 0; c < 256; ++c) {
    map.values[c] = static_cast<float>(entries[c]);
    if (c > 0) first_keys[c] = detail::map_key(0.5 * (entries[c - 1] + entries[c]));
  }
  first_keys[1] = detail::map_key(0) + 1;
  detail::fill_cells(map, first_keys, 0, UnsignedMap::kCellCount, 0);
  return map;
}

// The key of x * inverse in [-1, 1] (but for rounding); `offset` is kMapOffset.
NARROWGAUGE_HD uint32_t signed_key(float x, float inverse, uint32_t offset) {
  const uint32_t bits = float_bits(fused(x, inverse, bits_float((float_bits(x) & 0x80000000u) | offset)));
  return bits ^ static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
}

// The key of x * inverse in [0, 1]. Rounding up keeps a positive value apart from 0.
NARROWGAUGE_HD uint32_t unsigned_key(float x, float inverse) {
  return float_bits(fused_up(x, inverse, kMapOffset));
}

// The code of x * inverse on the host.
template <int kCells>
uint32_t code_of(const DynamicMap<kCells>& map, uint32_t key) {
  return ((key + map.cells[(key >> 16) - kFirstCell]) >> 16) & 0xffu;
}
inline uint32_t encode_signed(const SignedMap& map, float x, float inverse) {
  return code_of(map, signed_key(x, inverse, float_bits(kMapOffset)));
}
inline uint32_t encode_unsigned(const UnsignedMap& map, float x, float inverse) {
  return code_of(map, unsigned_key(x, inverse));
}

}  // namespace narrowgauge::cuda
