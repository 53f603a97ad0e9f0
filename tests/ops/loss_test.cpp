#include <ATen/ops/ones.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/ops/allocations.h"
#include "tests/ops/cross_entropy_cases.h"
#include "tests/ops/loss_cases.h"

namespace narrowgauge::test {
namespace {

const at::Device kCpu{at::kCPU};

TEST_CASE("cross-entropy on the CPU equals fp64") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t vocab : {1, 7, 41, 123, 32000}) {
      for (const int64_t rows : {1, 5, 70}) check_cross_entropy(kCpu, dtype, rows, vocab, 0, vocab, 0.0);
    }
    check_cross_entropy(kCpu, dtype, 40, 123, 5, 136, 1e-2);
    check_cross_entropy(kCpu, dtype, 5, 50257, 47, 50304, 1e-4);
    check_cross_entropy_extremes(kCpu, dtype, 41, 41);
  }
}

TEST_CASE("cross-entropy of no rows, and of ignored rows only") {
  const auto none = run_cross_entropy(at::ones({0, 9}), at::zeros({0}, at::kInt), 1.0, {.vocab = 9}, 9);
  CHECK(none.losses.numel() == 0);
  const auto ignored =
      run_cross_entropy(at::ones({3, 9}), at::full({3}, ops::kIgnoreIndex, at::kInt), 1.0, {.vocab = 9}, 16);
  CHECK(ignored.losses.eq(0).all().item<bool>());
  CHECK(ignored.logits.eq(0).all().item<bool>());
}

TEST_CASE("cross-entropy refuses wrong arguments") {
  const at::Tensor rows = at::zeros({2});
  const at::Tensor targets = at::zeros({2}, at::kInt);
  const at::Tensor scale = at::ones({});
  const auto run = [&](const at::Tensor& logits, const at::Tensor& t, int64_t vocab) {
    ops::cross_entropy_in_place(logits, rows, rows, t, scale, {.vocab = vocab});
  };
  CHECK_THROWS_AS(run(at::ones({2, 4}), targets, 5), c10::Error);
  CHECK_THROWS_AS(run(at::ones({2, 4}), targets.to(at::kLong), 4), c10::Error);
  CHECK_THROWS_AS(run(at::ones({4, 2}).t(), targets, 4), c10::Error);
  CHECK_THROWS_AS(run(at::ones({2, 4}, at::kDouble), targets, 4), c10::Error);
}

TEST_CASE("sums on the CPU") {
  for (const int64_t count : {0, 1, 31, 1024, 4097, 65536}) check_sums(kCpu, count);
  const at::Tensor out = at::zeros({});
  const at::Tensor x = at::ones({3});
  CHECK_THROWS_AS(ops::sum_into({{at::zeros({2}), x}}), c10::Error);
  CHECK_THROWS_AS(ops::sum_into({{out, at::ones({3}, at::kDouble)}}), c10::Error);
  CHECK_THROWS_AS(ops::sum_into({{out, at::ones({3, 4}).t()}}), c10::Error);
  CHECK_THROWS_AS(ops::sum_into({{out, x}, {out, x}, {out, x}, {out, x}}), c10::Error);
  ops::sum_into({});
  CHECK(out.item<float>() == 0);
}

TEST_CASE("the order of tokens is the stable one") {
  const auto check = [](const std::vector<int32_t>& tokens) {
    std::vector<int32_t> expected(tokens.size());
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<int32_t>(i);
    std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
      return tokens[static_cast<size_t>(a)] < tokens[static_cast<size_t>(b)];
    });
    std::vector<int32_t> order(tokens.size(), -1);
    ops::token_order(tokens.data(), static_cast<int64_t>(tokens.size()), order.data());
    CHECK(order == expected);
  };
  check({});
  check({7});
  check({7, 7, 7});
  check({0, -1, INT32_MAX, INT32_MIN, 5, -1, 0});
  for (const int64_t vocab : {2, 2048, 2049, 32000, 5000000}) {
    const at::Tensor tokens = Draws(8, kCpu).integers(-1, vocab, {5000});
    check({tokens.const_data_ptr<int32_t>(), tokens.const_data_ptr<int32_t>() + tokens.numel()});
  }
}

TEST_CASE("embedding on the CPU equals fp64") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t width : {1, 41, 256}) {
      for (const int64_t count : {0, 1, 300}) check_embedding(kCpu, dtype, count, 41, width);
    }
    check_embedding(kCpu, dtype, 2000, 1, 8);
  }
  check_embedding_runs(kCpu, at::kBFloat16, 41);
  check_embedding_outside(kCpu);
}

TEST_CASE("linear on the CPU equals fp64") {
  for (const int64_t rows : {0, 1, 65}) {
    check_linear(kCpu, at::kFloat, at::kFloat, rows, 41, 24);
    check_linear(kCpu, at::kBFloat16, at::kBFloat16, rows, 41, 24);
    check_linear(kCpu, at::kBFloat16, at::kFloat, rows, 41, 24);
  }
}

TEST_CASE("chunked loss on the CPU equals fp64") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const int64_t tokens : {0, 1, 15, 16, 17, 53}) check_loss(kCpu, dtype, tokens, 16, 123, 0, 48);
    check_loss(kCpu, dtype, 53, 16, 123, 5, 48);
    check_chunk_invariance(kCpu, dtype, 256, 123, 32);
  }
}

TEST_CASE("the loss never holds more than a chunk of logits") {
  constexpr int64_t kTokens = 2048;
  constexpr int64_t kChunk = 128;
  constexpr int64_t kVocab = 1000;
  Draws random(1, kCpu);
  const at::Tensor hidden = random.normal({kTokens, 16}, at::kFloat);
  const at::Tensor weight = random.normal({kVocab, 16}, at::kFloat);
  const at::Tensor targets = random.integers(0, kVocab, {kTokens});
  const at::Tensor dhidden = at::empty_like(hidden);
  const at::Tensor dweight = at::zeros_like(weight);
  const at::Tensor scale = at::ones({});
  const ops::LossBuffers buffers = loss_buffers(hidden, weight, kChunk, dhidden);
  const Allocations seen = record_allocations([&] {
    ops::linear_cross_entropy(hidden, weight, targets, scale, buffers, dweight, {.vocab = kVocab});
  });
  // The CPU twin's fp32 copy of a chunk, masks and per-token sums.
  CHECK(seen.largest <= kChunk * kVocab * 4);
  CHECK(seen.peak < kChunk * kVocab * 4 + kTokens * 64);
}

}  // namespace
}  // namespace narrowgauge::test
