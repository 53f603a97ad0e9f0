#pragma once
// Philox4x32 (Salmon et al. 2011): 128 random bits as a pure function of key and counter.
#include <cstdint>

#include "cuda/host_device.h"

namespace narrowgauge::cuda {

struct Random128 {
  uint32_t word[4];
};

// The 64 bits of a * b.
NARROWGAUGE_HD uint64_t wide_product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return uint64_t{a} * b;
#endif
}

// Seven rounds are the fewest that pass the paper's tests (BigCrush); ten are its default.
template <int kRounds = 10>
NARROWGAUGE_HD Random128 philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t c0 = static_cast<uint32_t>(counter_low);
  uint32_t c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high);
  uint32_t c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = wide_product(0xD2511F53u, c0);
    const uint64_t product1 = wide_product(0xCD9E8D57u, c2);
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace narrowgauge::cuda
