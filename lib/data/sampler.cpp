#include "lib/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "lib/base/error.h"

namespace narrowgauge::data {
namespace {

constexpr int kRounds = 8;

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

int64_t sample_count(int64_t tokens, int64_t context) { return std::max<int64_t>(tokens - 1, 0) / context; }

TrainValRanges split_train_val(int64_t token_count, int64_t context, double val_fraction) {
  const bool split = val_fraction > 0;
  const int64_t needed = (split ? 2 : 1) * (context + 1);
  if (token_count < needed) {
    throw UserError(
        fmt::format("the data has {} tokens, but {} needs at least {} at data.context = {}; use more text{} "
                    "or a smaller data.context",
                    token_count,
                    split ? "one window of context + 1 tokens each for training and validation"
                          : "one window of context + 1 tokens",
                    needed, context, split ? ", data.val_fraction = 0" : ""));
  }
  if (!split) return {{0, token_count}, {token_count, token_count}};
  const auto wanted = std::llround(static_cast<double>(sample_count(token_count, context)) * val_fraction);
  const int64_t most = sample_count(token_count - (context + 1), context);  // one window is left to train on
  const int64_t begin = token_count - (std::clamp<int64_t>(wanted, 1, most) * context + 1);
  return {{0, begin}, {begin, token_count}};
}

Sampler::Sampler(SampleRange range, int64_t context, uint64_t seed, bool shuffle)
    : range_(range),
      context_(context),
      seed_(seed),
      shuffle_(shuffle),
      count_(sample_count(range.end - range.begin, context)) {
  if (count_ < 1) throw std::invalid_argument("a sampler needs at least one window");
}

int64_t Sampler::offset(int64_t index) const {
  const int64_t epoch = index / count_;
  const int64_t inside = index % count_;
  return range_.begin + (shuffle_ ? permute(inside, count_, seed_, epoch) : inside) * context_;
}

int64_t permute(int64_t index, int64_t count, uint64_t seed, int64_t epoch) {
  if (count < 2) return index;
  // The network permutes [0, 2^(2 half)), less than four times `count`; values beyond are walked on from.
  const auto half = (std::bit_width(static_cast<uint64_t>(count - 1)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  std::array<uint64_t, kRounds> keys{};
  uint64_t key = mix(seed + 0x9e3779b97f4a7c15ULL) ^ static_cast<uint64_t>(epoch);
  for (auto& round : keys) round = key = mix(key + 0x9e3779b97f4a7c15ULL);

  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half;
    uint64_t right = value & mask;
    for (const uint64_t round : keys) {
      const uint64_t next = left ^ (mix(right + round) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

}  // namespace narrowgauge::data
