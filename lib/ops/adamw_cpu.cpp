#include "lib/ops/adamw_cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "lib/ops/fma_clones.h"

namespace narrowgauge::ops {
namespace {

constexpr int kBlock = static_cast<int>(cuda::kAdamWBlock);

constexpr cuda::SignedMap kSignedMap = cuda::make_signed_map();
constexpr cuda::UnsignedMap kUnsignedMap = cuda::make_unsigned_map();

// One block of 256 elements in fp32.
struct Block {
  float p[kBlock];
  float g[kBlock];
  float m[kBlock];
  float v[kBlock];
};

void load(float* to, const float* from) { std::copy_n(from, kBlock, to); }
void load(float* to, const Bits16* from) {
  for (int i = 0; i < kBlock; ++i) to[i] = cuda::bits_float(uint32_t{from[i]} << 16);
}

NARROWGAUGE_FMA_CLONES void advance(Block& b, float keep_m, float keep_v, const cuda::AdamWStep& step) {
  for (int i = 0; i < kBlock; ++i) {
    const cuda::Moments x = cuda::next_moments(b.g[i], {b.m[i], b.v[i]}, keep_m, keep_v, step);
    b.m[i] = x.m;
    b.v[i] = std::min(x.v, FLT_MAX);
  }
}

NARROWGAUGE_FMA_CLONES void update(Block& b, float decay, float eps, const cuda::AdamWStep& step) {
  for (int i = 0; i < kBlock; ++i) b.p[i] = cuda::next_weight(b.p[i], {b.m[i], b.v[i]}, decay, eps, step);
}

NARROWGAUGE_FMA_CLONES float encode_m(uint8_t* codes, const float* x) {
  float largest = 0;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
  const cuda::BlockScale scale = cuda::block_scale(largest);
  for (int i = 0; i < kBlock; ++i) {
    const float cut = cuda::larger(cuda::smaller(x[i], cuda::kLargestScale), -cuda::kLargestScale);
    codes[i] = static_cast<uint8_t>(cuda::encode_signed(kSignedMap, cut, scale.inverse));
  }
  return scale.scale;
}

NARROWGAUGE_FMA_CLONES float encode_v(uint8_t* codes, const float* x) {
  float largest = 0;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, x[i]);
  const cuda::BlockScale scale = cuda::block_scale(largest);
  for (int i = 0; i < kBlock; ++i) {
    const float cut = cuda::smaller(x[i], cuda::kLargestScale);
    codes[i] = static_cast<uint8_t>(cuda::encode_unsigned(kUnsignedMap, cut, scale.inverse));
  }
  return scale.scale;
}

void decode(float* x, const uint8_t* codes, const float* values) {
  for (int i = 0; i < kBlock; ++i) x[i] = values[codes[i]];
}

template <class G>
void load_weights(float* p, const cuda::AdamW<float, G>& args, int64_t element) {
  load(p, args.weights + element);
}
template <class G>
void load_weights(float* p, const cuda::AdamW<Bits16, G>& args, int64_t element) {
  if (args.master_mode == cuda::Master::fp32) return load(p, args.master + element);
  if (args.master_mode == cuda::Master::stochastic) return load(p, args.weights + element);
  for (int i = 0; i < kBlock; ++i) {
    p[i] = cuda::join_master(args.weights[element + i], args.remainder[element + i]);
  }
}

template <class G>
void store_weights(const cuda::AdamW<float, G>& args, int64_t element, const float* p) {
  std::copy_n(p, kBlock, args.weights + element);
}
template <class G>
void store_weights(const cuda::AdamW<Bits16, G>& args, int64_t element, const float* p) {
  Bits16* weights = args.weights + element;
  if (args.master_mode == cuda::Master::stochastic) {
    for (int i = 0; i < kBlock; i += 8) {
      const cuda::Random128 random = cuda::rounding_bits(args.state->input, (element + i) / 8);
      for (int j = 0; j < 8; ++j) {
        weights[i + j] = static_cast<Bits16>(cuda::bf16_stochastic(p[i + j], cuda::random16(random, j)));
      }
    }
  } else if (args.master_mode == cuda::Master::split) {
    for (int i = 0; i < kBlock; ++i) {
      const cuda::SplitMaster split = cuda::split_master(cuda::quiet(p[i]));
      weights[i] = static_cast<Bits16>(split.weight);
      args.remainder[element + i] = static_cast<int16_t>(split.remainder);
    }
  } else {
    for (int i = 0; i < kBlock; ++i) weights[i] = static_cast<Bits16>(cuda::bf16_nearest(p[i]));
    std::copy_n(p, kBlock, args.master + element);
  }
}

template <class T, class G>
void update_range(const cuda::AdamW<T, G>& args, const cuda::AdamWRange& range) {
  const cuda::AdamWFactors factors(args.rules);
  const cuda::AdamWStep step = cuda::adamw_step(*args.state, factors);
  const float decay = range.decay ? step.decay : 1.0f;
  const int64_t blocks = (range.end - range.begin) / kBlock;
  at::parallel_for(0, blocks, 16, [&](int64_t first, int64_t last) {
    Block b;
    for (int64_t block = first; block < last; ++block) {
      const int64_t offset = block * kBlock;
      const int64_t state = range.state_begin + offset;
      const int64_t scale = state / kBlock;
      load_weights(b.p, args, range.begin + offset);
      if (range.grad_is_low) {
        load(b.g, args.grad + range.grad_begin + offset);
      } else {
        load(b.g, args.grad32 + range.grad_begin + offset);
      }
      if (range.eight_bit) {
        decode(b.m, args.m_codes + state, kSignedMap.values);
        decode(b.v, args.v_codes + state, kUnsignedMap.values);
        advance(b, factors.beta1 * args.m_scales[scale], factors.beta2 * args.v_scales[scale], step);
        args.m_scales[scale] = encode_m(args.m_codes + state, b.m);
        args.v_scales[scale] = encode_v(args.v_codes + state, b.v);
      } else {
        load(b.m, args.m32 + state);
        load(b.v, args.v32 + state);
        advance(b, factors.beta1, factors.beta2, step);
        std::copy_n(b.m, kBlock, args.m32 + state);
        std::copy_n(b.v, kBlock, args.v32 + state);
      }
      update(b, decay, factors.eps, step);
      store_weights(args, range.begin + offset, b.p);
    }
  });
}

}  // namespace

template <class T, class G>
void adamw_on_cpu(const cuda::AdamW<T, G>& args) {
  if (args.state->skip != 0) return;
  for (int i = 0; i < args.range_count; ++i) update_range(args, args.ranges[i]);
}

template void adamw_on_cpu(const cuda::AdamW<float, float>&);
template void adamw_on_cpu(const cuda::AdamW<float, Bits16>&);
template void adamw_on_cpu(const cuda::AdamW<Bits16, float>&);
template void adamw_on_cpu(const cuda::AdamW<Bits16, Bits16>&);

}  // namespace narrowgauge::ops
