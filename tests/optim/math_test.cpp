// The optimizer's arithmetic without tensors: maps, roundings, random bits, schedules, ranges.
#include <cfloat>
#include <cmath>
#include <limits>
#include <set>

#include "cuda/adamw_math.h"
#include "cuda/step_math.h"
#include "lib/layout/ranges.h"
#include "lib/optim/schedule.h"
#include "tests/optim/reference.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using narrowgauge::cuda::bits_float;
using narrowgauge::cuda::float_bits;

namespace {

const cuda::SignedMap kSigned = cuda::make_signed_map();
const cuda::UnsignedMap kUnsigned = cuda::make_unsigned_map();

int encode(bool with_sign, float x, float inverse = 1.0f) {
  return static_cast<int>(with_sign ? cuda::encode_signed(kSigned, x, inverse)
                                    : cuda::encode_unsigned(kUnsigned, x, inverse));
}

}  // namespace

TEST_CASE("dynamic maps have 256 sorted distinct values with 0 and 1") {
  for (const bool with_sign : {true, false}) {
    const float* values = with_sign ? kSigned.values : kUnsigned.values;
    const std::vector<double> reference = test::reference_map(with_sign);
    REQUIRE(reference.size() == 256);
    for (int c = 0; c < 256; ++c) {
      REQUIRE(values[c] == Approx(reference[static_cast<size_t>(c)]).epsilon(1e-7));
      if (c > 0) REQUIRE(values[c] > values[c - 1]);
      REQUIRE(encode(with_sign, values[c]) == c);  // requantising is idempotent
    }
    REQUIRE(values[with_sign ? cuda::kSignedZero : 0] == 0.0f);
    REQUIRE(values[255] == 1.0f);
  }
  for (int j = 1; j < 128; ++j) REQUIRE(kSigned.values[127 - j] == -kSigned.values[127 + j]);
  REQUIRE(kSigned.values[0] == Approx(-0.99296875));
  REQUIRE(kUnsigned.values[1] == Approx(3.25e-7));
}

TEST_CASE("encoding finds the nearest entry") {
  for (const bool with_sign : {true, false}) {
    const std::vector<double> map = test::reference_map(with_sign);
    // Every boundary from both sides, and a sweep over all exponents.
    std::vector<float> values = {0.0f, 1.0f, bits_float(0x3f800001u), 1e-30f, FLT_MIN, 1e-7f};
    for (size_t c = 1; c < map.size(); ++c) {
      const double boundary = (map[c] + map[c - 1]) / 2;
      values.push_back(static_cast<float>(boundary + 1e-5 * std::fabs(boundary)));
      values.push_back(static_cast<float>(boundary - 1e-5 * std::fabs(boundary)));
    }
    for (double x = 1e-9; x < 1; x *= 1.0007) values.push_back(static_cast<float>(x));
    const size_t positive = values.size();
    for (size_t i = 0; i < positive && with_sign; ++i) values.push_back(-values[i]);
    for (const float x : values) {
      if (x < 0 && !with_sign) continue;
      const int code = encode(with_sign, x);
      int expected = test::nearest_code(map, x);
      if (!with_sign && x > 0) expected = std::max(expected, 1);
      const double error = std::fabs(map[static_cast<size_t>(code)] - x);
      const double least = std::fabs(map[static_cast<size_t>(expected)] - x);
      INFO("x = " << x << " code " << code << " expected " << expected);
      REQUIRE(error <= least * (1 + 1e-4));
    }
  }
  REQUIRE(encode(false, 1e-20f) == 1);  // v > 0 stays > 0
  REQUIRE(encode(true, 1e-20f) == cuda::kSignedZero);
  REQUIRE(encode(true, -1.0f) == 0);
}

TEST_CASE("scales of extreme blocks") {
  REQUIRE(cuda::block_scale(0.0f).scale == 0.0f);
  REQUIRE(cuda::block_scale(1e-42f).inverse == 0.0f);
  REQUIRE(cuda::block_scale(3.0f).scale == 3.0f);
  REQUIRE(std::isfinite(cuda::block_scale(FLT_MAX).inverse));
  REQUIRE(cuda::block_scale(FLT_MAX).inverse > 0.0f);
  REQUIRE(encode(true, cuda::kLargestScale, cuda::block_scale(FLT_MAX).inverse) == 255);
  REQUIRE(encode(true, -cuda::kLargestScale, cuda::block_scale(FLT_MAX).inverse) == 0);
  REQUIRE(encode(false, cuda::kLargestScale, cuda::block_scale(FLT_MAX).inverse) == 255);
  REQUIRE(encode(false, 1.0f, 0.0f) == 0);
  REQUIRE(encode(false, 1e-44f, 1e-30f) == 1);
}

TEST_CASE("Philox gives Random123's known answers") {
  const auto words = [](uint64_t key, uint64_t low, uint64_t high) {
    const cuda::Random128 r = cuda::philox(key, low, high);
    return std::vector<uint32_t>(r.word, r.word + 4);
  };
  using Words = std::vector<uint32_t>;
  REQUIRE(words(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  REQUIRE(words(~0ull, ~0ull, ~0ull) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  REQUIRE(words(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("stochastic rounding is unbiased and keeps what is exact") {
  for (const float x : {1.0f + 0x1p-10f, -3.14159265f, 0.007f, 1e-39f}) {
    double sum = 0;
    constexpr int kRepeats = 100000;
    std::set<uint32_t> seen;
    for (int i = 0; i < kRepeats; ++i) {
      const cuda::Random128 random =
          cuda::rounding_bits({.seed = 7, .step = static_cast<uint64_t>(i / 8)}, 5);
      const uint32_t bits = cuda::bf16_stochastic(x, cuda::random16(random, i % 8));
      seen.insert(bits);
      sum += bits_float(bits << 16);
    }
    const double ulp = std::fabs(bits_float((float_bits(x) & 0xff800000u) + 0x10000u) -
                                 bits_float(float_bits(x) & 0xff800000u));
    INFO(x);
    REQUIRE(seen.size() == 2);
    REQUIRE(std::fabs(sum / kRepeats - x) < 4 * 0.5 * ulp / std::sqrt(kRepeats));
    if (x > 1) REQUIRE(std::fabs(sum / kRepeats - x) < 3e-5);
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const uint32_t random : {0u, 1u, 0x8000u, 0xffffu}) {
    for (uint32_t high = 0; high < 0x10000u; ++high) {  // every representable value, Inf included, stays
      if ((high & 0x7fffu) <= 0x7f80u) REQUIRE(cuda::bf16_stochastic(bits_float(high << 16), random) == high);
    }
    REQUIRE(cuda::bf16_stochastic(infinity, random) == 0x7f80u);
    REQUIRE(std::isnan(bits_float(cuda::bf16_stochastic(bits_float(0x7f800001u), random) << 16)));
    REQUIRE(std::isnan(bits_float(cuda::bf16_stochastic(bits_float(0xffffffffu), random) << 16)));
    REQUIRE(cuda::bf16_stochastic(FLT_MAX, random) == 0x7f7fu);  // finite stays finite
    REQUIRE(cuda::bf16_stochastic(-FLT_MAX, random) == 0xff7fu);
  }
}

TEST_CASE("a split master is exact for all pairs and rounds to nearest, ties away from zero") {
  for (uint32_t weight = 0; weight < 0x10000u; ++weight) {
    for (const int remainder : {-32768, -32767, -1, 0, 1, 1234, 32766, 32767}) {
      const cuda::SplitMaster split = cuda::split_master(cuda::join_master(weight, remainder));
      if (split.weight != weight || split.remainder != remainder) FAIL(weight << " " << remainder);
    }
  }
  const auto weight_of = [](float x) { return bits_float(cuda::split_master(x).weight << 16); };
  REQUIRE(weight_of(bits_float(0x3f808000u)) == bits_float(0x3f810000u));
  REQUIRE(weight_of(bits_float(0xbf808000u)) == bits_float(0xbf810000u));
  REQUIRE(weight_of(bits_float(0x3f807fffu)) == 1.0f);
  REQUIRE(weight_of(0.0f) == 0.0f);
  REQUIRE(std::isnan(weight_of(cuda::quiet(bits_float(0x7fffffffu)))));
  REQUIRE(cuda::bf16_nearest(bits_float(0x3f808000u)) == 0x3f80u);  // ties to even
  REQUIRE(cuda::bf16_nearest(bits_float(0x3f818000u)) == 0x3f82u);
  REQUIRE(std::isnan(bits_float(cuda::bf16_nearest(bits_float(0x7f800001u)) << 16)));
}

TEST_CASE("the step struct after a norm") {
  cuda::StepState state;
  const cuda::StepRules rules{.max_norm = 1.0, .beta1 = 0.9, .beta2 = 0.999};
  cuda::finish_step(state, 4.0, rules);
  REQUIRE(state.grad_norm == 2.0f);
  REQUIRE(state.clip_factor == Approx(1.0 / (2.0 + 1e-6)));
  REQUIRE(state.adam_step == 1);
  REQUIRE(state.bias_correction1 == Approx(0.1).epsilon(1e-6));
  REQUIRE(state.bias_correction2 == Approx(0.001).epsilon(1e-6));
  cuda::finish_step(state, 0.25, rules);
  REQUIRE(state.clip_factor == 1.0f);
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    cuda::finish_step(state, bad, rules);
    REQUIRE(state.skip == 1);
    REQUIRE(state.adam_step == 2);
  }
  REQUIRE(state.skipped_in_row == 2);
  cuda::finish_step(state, 1e60, {.max_norm = 0, .beta1 = 0, .beta2 = 0.95});
  REQUIRE(state.skip == 0);
  REQUIRE(state.clip_factor == 1.0f);
  REQUIRE(state.bias_correction1 == 1.0f);
  REQUIRE(state.skipped_in_row == 0);
  REQUIRE(state.skipped_total == 2);
  state.adam_step = 1000000;
  cuda::finish_step(state, 1.0, rules);
  REQUIRE(state.bias_correction2 == 1.0f);
}

TEST_CASE("schedules") {
  OptimConfig config{.lr = 1.0, .min_lr = 0.1, .schedule = "cosine", .warmup_steps = 10};
  const auto at = [&](const char* name, int64_t total, int64_t step) {
    config.schedule = name;
    return optim::learning_rate(config, total, step);
  };
  for (const char* name : {"cosine", "linear", "wsd", "constant"}) {
    REQUIRE(at(name, 110, 0) == Approx(0.1));  // lr / warmup_steps
    REQUIRE(at(name, 110, 9) == Approx(1.0));
    REQUIRE(at(name, 110, 10) == Approx(1.0));
    const double end = std::string(name) == "constant" ? 1.0 : 0.1;
    REQUIRE(at(name, 110, 110) == Approx(end));
    REQUIRE(at(name, 110, 100000) == Approx(end));
  }
  REQUIRE(at("cosine", 110, 60) == Approx(0.55));
  REQUIRE(at("linear", 110, 60) == Approx(0.55));
  REQUIRE(at("linear", 110, 109) == Approx(0.1 + 0.9 * 0.01));
  config.decay_fraction = 0.2;  // the last 20 of 100 steps
  REQUIRE(at("wsd", 100, 80) == Approx(1.0));
  REQUIRE(at("wsd", 100, 90) == Approx(0.55));
  REQUIRE(at("wsd", 100, 99) == Approx(0.1 + 0.9 * 0.05));
  config.decay_fraction = 1.0;  // decay begins where warmup ends
  REQUIRE(at("wsd", 110, 10) == Approx(1.0));
  REQUIRE(at("wsd", 110, 60) == Approx(0.55));
  config.decay_fraction = 0.0;
  REQUIRE(at("wsd", 110, 109) == Approx(1.0));
  config.warmup_steps = 0;
  for (const char* name : {"cosine", "linear", "wsd"}) {
    REQUIRE(at(name, 1, 0) == Approx(1.0));
    REQUIRE(at(name, 1, 1) == Approx(0.1));
  }
  config.warmup_steps = 10;  // a warmup longer than the schedule
  REQUIRE(at("cosine", 5, 4) == Approx(0.5));
  REQUIRE(at("cosine", 5, 10) == Approx(0.1));
  REQUIRE_THROWS_AS(at("cubic", 100, 50), std::invalid_argument);
}

TEST_CASE("update ranges") {
  using layout::TensorSlot;
  using layout::UpdateRange;
  const std::vector<TensorSlot> slots = {
      {.offset = 0, .grad_offset = 0, .count = 4096, .embedding = false, .norm = false},
      {.offset = 4096,
       .grad_offset = 4096,
       .count = 5000,
       .embedding = false,
       .norm = false},  // padded to 5120
      {.offset = 9216,
       .grad_offset = 9216,
       .count = 4095,
       .embedding = false,
       .norm = false},  // below min_8bit_size
      {.offset = 13312, .grad_offset = 0, .count = 8192, .embedding = true, .norm = false},
      {.offset = 21504, .grad_offset = 8192, .count = 8192, .embedding = true, .norm = false},
      {.offset = 29696, .grad_offset = 16384, .count = 9000, .embedding = false, .norm = true},
      {.offset = 38912, .grad_offset = 25600, .count = 100, .embedding = false, .norm = true},
  };
  OptimConfig config;
  using Ranges = std::vector<UpdateRange>;
  const Ranges expected = {{0, 9216, 0, true, true, true},
                           {9216, 13312, 9216, true, false, true},
                           {13312, 29696, 0, false, false, true},
                           {29696, 39168, 16384, false, false, false}};
  REQUIRE(layout::make_update_ranges(slots, config) == expected);
  std::vector<TensorSlot> shuffled(slots.rbegin(), slots.rend());
  REQUIRE(layout::make_update_ranges(shuffled, config) == expected);
  config.decay_embedding = false;
  config.embedding_state = "8bit";
  const UpdateRange embedding{13312, 29696, 0, false, true, false};
  REQUIRE(layout::make_update_ranges(slots, config)[2] == embedding);
  config.state = "fp32";
  for (const UpdateRange& r : layout::make_update_ranges(slots, config)) REQUIRE_FALSE(r.eight_bit);
  config = {};
  config.min_8bit_size = 4095;
  REQUIRE(layout::make_update_ranges(slots, config)[0] == UpdateRange{0, 13312, 0, true, true, true});
  // A gap in the weights or in the gradients splits a range.
  std::vector<TensorSlot> gap = {slots[0], slots[1]};
  gap[1].grad_offset += 256;
  REQUIRE(layout::make_update_ranges(gap, config).size() == 2);
  gap[1].offset = 3840;
  REQUIRE_THROWS_AS(layout::make_update_ranges(gap, config), std::invalid_argument);
  gap[1].offset = 4097;
  REQUIRE_THROWS_AS(layout::make_update_ranges(gap, config), std::invalid_argument);
  REQUIRE(layout::make_update_ranges({}, config).empty());
}
