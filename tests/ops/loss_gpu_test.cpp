#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "lib/ops/device.h"
#include "tests/ops/cross_entropy_cases.h"
#include "tests/ops/loss_cases.h"

namespace narrowgauge::test {
namespace {

const at::Device kGpu{at::kCUDA, 0};

// Runs `body` under this card's limits and under those of the card that the project is for.
template <class Body>
void under_both_limits(Body&& body) {
  body();
  ops::override_limits(&cuda::kRtx5080Limits);
  body();
  ops::override_limits(nullptr);
}

TEST_CASE("cross-entropy on CUDA equals fp64", "[sanitize]") {
  under_both_limits([] {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t vocab : {1, 7, 41, 123, 31999, 32000, 32768, 50257, 128256}) {
        // As it comes, and with rows on 16 bytes.
        check_cross_entropy(kGpu, dtype, 5, vocab, 0, vocab, 0.0);
        check_cross_entropy(kGpu, dtype, 70, vocab, 0, (vocab + 7) / 8 * 8, 1e-2);
      }
      check_cross_entropy(kGpu, dtype, 40, 123, 5, 136, 1e-2);
      check_cross_entropy(kGpu, dtype, 40, 50257, 47, 50304, 1e-4);
      check_cross_entropy(kGpu, dtype, 40, 128250, 6, 128256, 1e-4);
      check_cross_entropy_extremes(kGpu, dtype, 41, 41);          // a column at a time
      check_cross_entropy_extremes(kGpu, dtype, 4096, 4096);      // resident
      check_cross_entropy_extremes(kGpu, dtype, 128256, 128256);  // streaming
    }
  });
}

TEST_CASE("cross-entropy on CUDA beyond 2^31 logits") {
  constexpr int64_t kRows = 67200;
  constexpr int64_t kVocab = 32000;
  const at::Tensor logits = at::empty({kRows, kVocab}, at::TensorOptions(kGpu).dtype(at::kBFloat16));
  const at::Tensor row = Draws(2, kGpu).normal({2, kVocab}, at::kBFloat16);
  const at::Tensor targets = Draws(3, kGpu).integers(0, kVocab, {2});
  logits.narrow(0, 0, kRows - 2).zero_();
  logits.narrow(0, kRows - 2, 2).copy_(row);
  const at::Tensor all_targets = at::full({kRows}, ops::kIgnoreIndex, targets.options());
  all_targets.narrow(0, kRows - 2, 2).copy_(targets);
  const at::Tensor losses = at::empty({kRows}, at::TensorOptions(kGpu));
  const at::Tensor lse = at::empty_like(losses);
  ops::cross_entropy_in_place(logits, losses, lse, all_targets, at::full({}, 2.0, losses.options()),
                              {.vocab = kVocab});
  const auto alone = run_cross_entropy(row, targets, 2.0, {.vocab = kVocab}, kVocab);
  CHECK(same_bits(losses.narrow(0, kRows - 2, 2), alone.losses));
  CHECK(same_bits(logits.narrow(0, kRows - 2, 2), alone.logits.contiguous()));
  CHECK(losses.narrow(0, 0, kRows - 2).eq(0).all().item<bool>());
}

TEST_CASE("embedding on CUDA equals fp64", "[sanitize]") {
  under_both_limits([] {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t width : {1, 8, 41, 112, 1792, 4096}) {
        for (const int64_t count : {0, 1, 33, 5000}) check_embedding(kGpu, dtype, count, 259, width);
      }
      check_embedding(kGpu, dtype, 9000, 1, 264);       // one token all the time
      check_embedding(kGpu, dtype, 4096, 32000, 1792);  // mostly different ones
      for (const int64_t width : {1, 41, 264, 1792}) check_embedding_runs(kGpu, dtype, width);
    }
    check_embedding_outside(kGpu);
  });
}

TEST_CASE("more tokens than one grid of the embedding's backward") {
  check_embedding(kGpu, at::kFloat, 65535 * 8 + 9, 1 << 18, 1);
}

TEST_CASE("the embedding's gradient may begin anywhere") {
  const at::Tensor tokens = at::tensor({2, 0, 2}, at::kInt).to(kGpu);
  const at::Tensor dy = at::ones({3, 8}, at::TensorOptions(kGpu).dtype(at::kBFloat16));
  const at::Tensor buffer = at::zeros({3 * 8 + 1}, at::TensorOptions(kGpu));
  ops::embedding_backward(buffer.narrow(0, 1, 24).view({3, 8}), dy, tokens);  // 4 bytes off
  CHECK(buffer.sum().item<float>() == 24.0f);
  CHECK(buffer[0].item<float>() == 0.0f);
  CHECK(buffer.narrow(0, 17, 8).eq(2).all().item<bool>());
}

TEST_CASE("sums on CUDA equal those on the CPU", "[sanitize]") {
  for (const int64_t count : {0, 1, 31, 1024, 4097, 65536}) {
    CHECK(same_bits(check_sums(kGpu, count), check_sums(at::kCPU, count)));
  }
}

TEST_CASE("linear on CUDA equals fp64") {
  for (const int64_t rows : {0, 1, 65, 1024}) {
    for (const int64_t in : {41, 256}) {
      check_linear(kGpu, at::kFloat, at::kFloat, rows, in, 128);
      check_linear(kGpu, at::kBFloat16, at::kBFloat16, rows, in, 128);
      check_linear(kGpu, at::kBFloat16, at::kFloat, rows, in, 128);
    }
  }
}

TEST_CASE("a weight gradient is accumulated without a copy") {
  const auto bf16 = at::TensorOptions(kGpu).dtype(at::kBFloat16);
  const at::Tensor dw = at::zeros({4096, 4096}, at::TensorOptions(kGpu));
  const at::Tensor dy = at::ones({64, 4096}, bf16);
  ops::linear_weight_grad(dw, dy, dy);  // cuBLAS takes its workspace
  c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  const auto allocated = [](const auto& stats) { return stats.allocated_bytes[0]; };
  const int64_t before = allocated(c10::cuda::CUDACachingAllocator::getDeviceStats(0)).current;
  ops::linear_weight_grad(dw, dy, dy);
  CHECK(allocated(c10::cuda::CUDACachingAllocator::getDeviceStats(0)).peak - before < dw.numel());
  CHECK(dw.eq(128).all().item<bool>());
}

TEST_CASE("chunked loss on CUDA equals fp64") {
  under_both_limits([] {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t tokens : {0, 1, 63, 64, 65, 197}) check_loss(kGpu, dtype, tokens, 64, 123, 0, 48);
      check_loss(kGpu, dtype, 197, 64, 123, 5, 48);
      check_loss(kGpu, dtype, 600, 256, 32000, 0, 256);
      check_loss(kGpu, dtype, 300, 128, 50257, 47, 64);
      check_chunk_invariance(kGpu, dtype, 1024, 1000, 64);
    }
  });
}

TEST_CASE("the loss on CUDA allocates next to nothing") {
  constexpr int64_t kTokens = 8192;
  constexpr int64_t kChunk = 1024;
  constexpr int64_t kVocab = 32000;
  Draws random(1, kGpu);
  const at::Tensor hidden = random.normal({kTokens, 256}, at::kBFloat16);
  const at::Tensor weight = random.normal({kVocab, 256}, at::kBFloat16, 0.1);
  const at::Tensor targets = random.integers(0, kVocab, {kTokens});
  run_loss(hidden, weight, targets, kChunk, {.vocab = kVocab});  // cuBLAS takes its workspace
  const at::Tensor dhidden = at::empty_like(hidden);
  const at::Tensor dweight = at::zeros({kVocab, 256}, at::TensorOptions(kGpu));
  const at::Tensor scale = at::ones({}, at::TensorOptions(kGpu));
  const ops::LossBuffers buffers = loss_buffers(hidden, weight, kChunk, dhidden);
  c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  const auto stats = [] { return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0]; };
  const int64_t before = stats().current;
  ops::linear_cross_entropy(hidden, weight, targets, scale, buffers, dweight, {.vocab = kVocab});
  CHECK(stats().peak - before < kTokens * 64);
}

}  // namespace
}  // namespace narrowgauge::test
