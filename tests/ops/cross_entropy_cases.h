#pragma once
// Cross-entropy, whatever the device: called by the CPU and the GPU test programs.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include "lib/ops/cross_entropy.h"
#include "tests/ops/loss_reference.h"

namespace narrowgauge::test {

struct CrossEntropyResult {
  at::Tensor logits;  // the gradient, when it was asked for
  at::Tensor losses;
  at::Tensor lse;
};

// Runs on a copy of `logits` whose rows are `stride` apart.
inline CrossEntropyResult run_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, double scale,
                                            const ops::CrossEntropyOptions& options, int64_t stride) {
  const auto fp32 = logits.options().dtype(at::kFloat);
  CrossEntropyResult r{
      .logits = at::empty({logits.size(0), stride}, logits.options()).narrow(1, 0, logits.size(1)),
      .losses = at::full({logits.size(0)}, 7.0, fp32),
      .lse = at::full({logits.size(0)}, 7.0, fp32)};
  r.logits.copy_(logits);
  ops::cross_entropy_in_place(r.logits, r.losses, r.lse, targets, at::full({}, scale, fp32), options);
  return r;
}

// One shape against fp64; `padding` columns of garbage follow the vocabulary.
inline void check_cross_entropy(at::Device device, at::ScalarType dtype, int64_t rows, int64_t vocab,
                                int64_t padding, int64_t stride, double z_loss) {
  INFO(dtype << " rows " << rows << " vocab " << vocab << " padding " << padding << " stride " << stride);
  Draws random(static_cast<uint64_t>(vocab * 31 + rows), device);
  at::Tensor logits = random.normal({rows, vocab + padding}, dtype, 3.0);
  logits.narrow(1, vocab, padding).fill_(kNan);
  at::Tensor targets = random.integers(0, vocab, {rows});
  targets[0] = vocab - 1;
  if (rows > 1) targets[1] = 0;
  if (rows > 2) targets[2] = ops::kIgnoreIndex;
  const ops::CrossEntropyOptions options{.vocab = vocab, .z_loss = z_loss};
  const auto ours = run_cross_entropy(logits, targets, 0.37, options, stride);

  const auto expected = [&](at::ScalarType compute) {
    const at::Tensor x = leaf(logits, compute);
    const RowLosses r = plain_cross_entropy(x, targets, vocab, z_loss);
    (r.losses.sum() * 0.37).backward();
    return std::tuple(r.losses.detach(), r.lse.detach(),
                      x.grad().to(compute == at::kDouble ? at::kDouble : dtype));
  };
  const auto [losses, lse, gradient] = expected(at::kDouble);
  const auto [plain_losses, plain_lse, plain_gradient] = expected(at::kFloat);
  check_as_good(ours.losses, plain_losses, losses, "losses");
  check_as_good(ours.lse, plain_lse, lse, "lse");
  check_as_good(ours.logits, plain_gradient, gradient, "gradient");
  CHECK(ours.logits.narrow(1, vocab, padding).eq(0).all().item<bool>());

  const auto again = run_cross_entropy(logits, targets, 0.37, options, stride);
  CHECK(same_bits(ours.losses, again.losses));
  CHECK(same_bits(ours.logits.contiguous(), again.logits.contiguous()));

  const auto only_loss =
      run_cross_entropy(logits, targets, 0.37, {.vocab = vocab, .z_loss = z_loss, .gradient = false}, stride);
  CHECK(same_bits(ours.losses, only_loss.losses));
  CHECK(same_bits(only_loss.logits.contiguous(), logits));
}

// Extremes of values and targets, all in one batch of rows: each row must mind its own business.
inline void check_cross_entropy_extremes(at::Device device, at::ScalarType dtype, int64_t vocab,
                                         int64_t stride) {
  INFO(dtype << " vocab " << vocab << " stride " << stride);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr double kScale = 0.5;
  Draws random(5, device);
  at::Tensor x = random.normal({10, vocab}, dtype);
  const at::Tensor clean = x.clone();
  at::Tensor targets = random.integers(0, vocab, {10});
  const auto target_of = [&](int64_t row) { return targets[row].item<int>(); };
  x[0][vocab / 2] = kNan;
  targets[1] = ops::kIgnoreIndex;
  x[1][0] = kNan;
  targets[2] = static_cast<int>(vocab);
  targets[3] = -1;
  x[4].mul_(1e4);
  x[5].fill_(-kInf);
  x[5][target_of(5)] = 2.0;
  x[5][(target_of(5) + 1) % vocab] = 2.0;
  x[6].fill_(-1e4);
  x[6][target_of(6)] = 20.0;  // p -> 1
  x[7].fill_(0.0);
  x[7][target_of(7)] = 16.0;
  x[8].fill_(-kInf);
  const auto r = run_cross_entropy(x, targets, kScale, {.vocab = vocab}, stride);
  const at::Tensor g = r.logits.to(at::kDouble).contiguous();
  const at::Tensor losses = r.losses.to(at::kDouble);
  const auto loss = [&](int64_t row) { return losses[row].item<double>(); };

  CHECK(std::isnan(loss(0)));
  CHECK(g[0].isnan().all().item<bool>());
  CHECK(loss(1) == 0.0);
  CHECK(r.lse[1].item<float>() == 0.0f);
  CHECK(g[1].eq(0).all().item<bool>());
  for (const int64_t out_of_range : {2, 3}) {
    CHECK(std::isnan(loss(out_of_range)));
    CHECK(g[out_of_range].eq(0).all().item<bool>());
  }
  CHECK(std::isfinite(loss(4)));
  CHECK(g[4].isfinite().all().item<bool>());
  CHECK(loss(5) == Approx(std::log(2.0)));
  CHECK(g[5][target_of(5)].item<double>() == Approx(-0.5 * kScale));
  CHECK(g[5].ne(0).sum().item<int64_t>() == 2);
  CHECK(loss(6) == 0.0);
  CHECK(g[6].eq(0).all().item<bool>());
  // A confident row: p - 1 and log p must not cancel.
  const double others = static_cast<double>(vocab - 1) * std::exp(-16.0);
  const double unit = dtype == at::kFloat ? 1e-5 : 1.0 / 256;
  CHECK(loss(7) == Approx(std::log1p(others)).epsilon(1e-5));
  CHECK(g[7][target_of(7)].item<double>() == Approx(-kScale * others / (1 + others)).epsilon(unit));
  CHECK(std::isnan(loss(8)));  // nothing is possible
  // The last row is as it would be alone, and a shift of all its logits changes nothing but lse.
  const auto alone =
      run_cross_entropy(clean.narrow(0, 9, 1), targets.narrow(0, 9, 1), kScale, {.vocab = vocab}, stride);
  CHECK(same_bits(alone.losses, r.losses.narrow(0, 9, 1)));
  CHECK(same_bits(alone.logits.contiguous(), r.logits.narrow(0, 9, 1).contiguous()));
  const at::Tensor even = clean.narrow(0, 9, 1).mul(4).round().div(4).to(dtype);
  const auto low = run_cross_entropy(even, targets.narrow(0, 9, 1), kScale, {.vocab = vocab}, stride);
  const auto high = run_cross_entropy(even + 32, targets.narrow(0, 9, 1), kScale, {.vocab = vocab}, stride);
  CHECK(relative_error(low.losses, high.losses) < 1e-5);
  CHECK(same_bits(low.logits.contiguous(), high.logits.contiguous()));
}

}  // namespace narrowgauge::test
