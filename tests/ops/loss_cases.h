#pragma once
// Embedding, linear and the chunked loss, whatever the device.
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <random>
#include <vector>

#include "lib/ops/cross_entropy.h"
#include "lib/ops/embedding.h"
#include "lib/ops/linear.h"
#include "lib/ops/linear_cross_entropy.h"
#include "lib/ops/sum.h"
#include "lib/ops/token_order.h"
#include "tests/ops/loss_reference.h"

namespace narrowgauge::test {

inline void check_embedding(at::Device device, at::ScalarType dtype, int64_t count, int64_t vocab,
                            int64_t width) {
  INFO(dtype << " count " << count << " vocab " << vocab << " width " << width);
  Draws random(static_cast<uint64_t>(count + vocab * 7 + width), device);
  const at::Tensor weight = random.normal({vocab, width}, dtype);
  const at::Tensor tokens = random.integers(0, vocab, {count});
  const at::Tensor out = at::full({count, width}, kNan, weight.options());
  ops::embedding_forward(out, weight, tokens);
  CHECK(same_bits(out, weight.index_select(0, tokens)));

  const at::Tensor dy = random.normal({count, width}, dtype);
  const at::Tensor before = random.normal({vocab, width}, at::kFloat);
  const at::Tensor dweight = before.clone();
  ops::embedding_backward(dweight, dy, tokens);
  const auto sum = [&](at::ScalarType compute) {
    return before.to(compute).index_add(0, tokens, dy.to(compute));
  };
  check_as_good(dweight, sum(at::kFloat), sum(at::kDouble), "dweight");
  const at::Tensor again = before.clone();
  ops::embedding_backward(again, dy, tokens);
  CHECK(same_bits(dweight, again));

  const at::Tensor on_host = tokens.cpu();
  const at::Tensor order = at::empty_like(on_host);
  ops::token_order(on_host.const_data_ptr<int32_t>(), count, order.data_ptr<int32_t>());
  const at::Tensor ordered = before.clone();
  ops::embedding_backward(ordered, dy, tokens, order.to(device));
  CHECK(same_bits(dweight, ordered));
}

// Runs of 1, 2, ... equal tokens, shuffled, and of every length around a whole number of warps.
inline void check_embedding_runs(at::Device device, at::ScalarType dtype, int64_t width) {
  INFO(dtype << " width " << width);
  std::vector<int32_t> ids;
  int32_t id = 0;
  const auto add_run = [&](int64_t length) { ids.insert(ids.end(), static_cast<size_t>(length), id++); };
  for (int64_t length = 1; length <= 70; ++length) add_run(length);
  for (const int64_t length : {1, 1, 255, 256, 257, 287, 1, 288, 289, 513}) add_run(length);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(3));
  const auto count = static_cast<int64_t>(ids.size());
  const at::Tensor tokens = at::tensor(ids, at::kInt).to(device);
  Draws random(17, device);
  const at::Tensor dy = random.normal({count, width}, dtype);
  const at::Tensor before = random.normal({id + 1, width}, at::kFloat);  // the last id has no token
  const at::Tensor dweight = before.clone();
  ops::embedding_backward(dweight, dy, tokens);
  const auto sum = [&](at::ScalarType compute) {
    return before.to(compute).index_add(0, tokens, dy.to(compute));
  };
  check_as_good(dweight, sum(at::kFloat), sum(at::kDouble), "dweight");
  CHECK(same_bits(dweight.select(0, id), before.select(0, id)));
  const at::Tensor again = before.clone();
  ops::embedding_backward(again, dy, tokens);
  CHECK(same_bits(dweight, again));
}

inline void check_embedding_outside(at::Device device) {
  const at::Tensor weight = at::ones({3, 8}, at::TensorOptions(device));
  at::Tensor tokens = at::zeros({3}, at::TensorOptions(device).dtype(at::kInt));
  tokens[0] = 3;
  tokens[2] = -1;
  const at::Tensor out = at::empty({3, 8}, weight.options());
  ops::embedding_forward(out, weight, tokens);
  CHECK(out.isnan().sum().item<int64_t>() == 16);
  const at::Tensor dweight = at::zeros({3, 8}, weight.options());
  ops::embedding_backward(dweight, at::ones({3, 8}, weight.options()), tokens);
  CHECK(dweight.sum().item<float>() == 8.0f);
}

inline void check_linear(at::Device device, at::ScalarType dtype, at::ScalarType gradient, int64_t rows,
                         int64_t in, int64_t out) {
  INFO(dtype << " into " << gradient << " rows " << rows << " in " << in << " out " << out);
  Draws random(11, device);
  const at::Tensor x = random.normal({rows, in}, dtype);
  const at::Tensor w = random.normal({out, in}, dtype).requires_grad_();  // as a parameter is
  const at::Tensor dy = random.normal({rows, out}, dtype);
  const auto as = [](const at::Tensor& t, at::ScalarType type) { return t.detach().to(type); };

  const at::Tensor y = at::empty({rows, out}, x.options());
  ops::linear_forward(y, x, w);
  check_as_good(y, at::mm(x, w.detach().t()), at::mm(as(x, at::kDouble), as(w, at::kDouble).t()), "y");
  const at::Tensor dx = at::empty({rows, in}, x.options());
  ops::linear_input_grad(dx, dy, w);
  check_as_good(dx, at::mm(dy, w.detach()), at::mm(as(dy, at::kDouble), as(w, at::kDouble)), "dx");

  const at::Tensor before = random.normal({out, in}, gradient);
  const at::Tensor dw = before.clone();
  ops::linear_weight_grad(dw, dy, x);
  const at::Tensor expected = as(before, at::kDouble) + at::mm(as(dy, at::kDouble).t(), as(x, at::kDouble));
  const at::Tensor plain = before + at::mm(as(dy, gradient).t(), as(x, gradient));
  check_as_good(dw, plain, expected, "dw");
}

// Sums of x and of its squares, added to what is there: near fp64, and the same bits twice. Returns them.
inline at::Tensor check_sums(at::Device device, int64_t count) {
  INFO("count " << count);
  const at::Tensor x = Draws(5, device).normal({count}, at::kFloat, 3.0) + 9.0;
  at::Tensor sums = at::full({2}, 2.0, x.options());
  const auto add = [&](const at::Tensor& to) {
    ops::sum_into({{.out = to.select(0, 0), .x = x}, {.out = to.select(0, 1), .x = x, .squares = true}});
  };
  add(sums);
  const at::Tensor exact = x.to(at::kDouble);
  CHECK(std::abs(sums[0].item<double>() / (exact.sum().item<double>() + 2) - 1) < 1e-6);
  CHECK(std::abs(sums[1].item<double>() / (exact.square().sum().item<double>() + 2) - 1) < 1e-6);
  const at::Tensor again = at::full({2}, 2.0, x.options());
  add(again);
  CHECK(same_bits(sums, again));
  return sums.cpu();
}

struct ChunkedLoss {
  ops::LossSums sums;
  at::Tensor dhidden;
  at::Tensor dweight;
};

// Memory for the loss of `hidden`, rows of logits on 16 bytes.
inline ops::LossBuffers loss_buffers(const at::Tensor& hidden, const at::Tensor& weight, int64_t chunk,
                                     const at::Tensor& dhidden) {
  const int64_t vocab = weight.size(0);
  const auto fp32 = hidden.options().dtype(at::kFloat);
  return {.losses = at::full({hidden.size(0)}, kNan, fp32),
          .lse = at::full({hidden.size(0)}, kNan, fp32),
          .sums = at::full({3}, kNan, fp32),
          .logits = at::full({chunk, (vocab + 7) / 8 * 8}, kNan, hidden.options()).narrow(1, 0, vocab),
          .dhidden = dhidden};
}

inline ChunkedLoss run_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                            int64_t chunk, const ops::LossOptions& options) {
  const auto fp32 = hidden.options().dtype(at::kFloat);
  ChunkedLoss r{.sums = {},
                .dhidden = at::full(hidden.sizes(), kNan, hidden.options()),
                .dweight = at::full(weight.sizes(), 0.25, fp32)};
  r.sums = ops::linear_cross_entropy(hidden, weight, targets, at::full({}, 0.125, fp32),
                                     loss_buffers(hidden, weight, chunk, r.dhidden), r.dweight, options);
  return r;
}

inline void check_loss(at::Device device, at::ScalarType dtype, int64_t tokens, int64_t chunk, int64_t vocab,
                       int64_t padding, int64_t width) {
  INFO(dtype << " tokens " << tokens << " chunk " << chunk << " vocab " << vocab << "+" << padding
             << " width " << width);
  constexpr double kZ = 1e-3;
  Draws random(static_cast<uint64_t>(tokens * 3 + vocab), device);
  const at::Tensor hidden = random.normal({tokens, width}, dtype);
  const at::Tensor weight =
      random.normal({vocab + padding, width}, dtype, 2.0 / std::sqrt(static_cast<double>(width)));
  at::Tensor targets = random.integers(0, vocab, {tokens});
  // A whole chunk is ignored, and a few more.
  if (tokens > chunk) targets.narrow(0, 0, chunk).fill_(ops::kIgnoreIndex);
  if (tokens > 2) targets[tokens - 2] = ops::kIgnoreIndex;
  const ops::LossOptions options{.vocab = vocab, .z_loss = kZ};
  const ChunkedLoss ours = run_loss(hidden, weight, targets, chunk, options);

  // `dtype`: what the logits and their gradient are rounded to.
  const auto expected = [&](at::ScalarType compute) {
    const at::Tensor h = leaf(hidden, compute);
    const at::Tensor w = leaf(weight, compute);
    const at::Tensor logits = at::mm(h, w.t());
    const at::Tensor upcast = compute == at::kBFloat16 ? logits.to(at::kFloat) : logits;
    const RowLosses r = plain_cross_entropy(upcast, targets, vocab, kZ);
    (r.losses.sum() * 0.125).backward();
    return std::tuple(r.losses.detach().sum(), r.lse.detach().sum(), h.grad(), w.grad() + 0.25);
  };
  const auto [loss, lse, dhidden, dweight] = expected(at::kDouble);
  const auto [plain_loss, plain_lse, plain_dhidden, plain_dweight] = expected(dtype);
  // A sum's error is luck; it is held to the roundings that go into it: of fp32, or of every token's bf16
  // logits.
  const double root = std::sqrt(static_cast<double>(tokens));
  const auto check_sum = [&](const at::Tensor& ours_sum, const at::Tensor& exact) {
    const double value = exact.item<double>();
    const double allowed = dtype == at::kFloat ? 2e-6 * std::abs(value) : 0.02 * root;
    CHECK(std::abs(ours_sum.item<double>() - value) <= allowed);
  };
  check_sum(ours.sums.loss, loss);
  check_sum(ours.sums.lse, lse);
  check_as_good(ours.dhidden, plain_dhidden, dhidden, "dhidden");
  check_as_good(ours.dweight, plain_dweight, dweight, "dweight");

  const auto only = ops::linear_cross_entropy(hidden, weight, targets, {},
                                              loss_buffers(hidden, weight, chunk, {}), {}, options);
  CHECK(same_bits(only.loss.view({1}), ours.sums.loss.view({1})));
  // In place of the hidden state.
  const at::Tensor again = hidden.clone();
  const at::Tensor dweight_again = at::full(weight.sizes(), 0.25, hidden.options().dtype(at::kFloat));
  ops::linear_cross_entropy(again, weight, targets, at::full({}, 0.125, dweight_again.options()),
                            loss_buffers(again, weight, chunk, again), dweight_again, options);
  CHECK(same_bits(dweight_again, ours.dweight));
  CHECK(same_bits(again, ours.dhidden));
}

// The chunk changes neither the loss nor, beyond the fp32 order of sums, the gradients.
inline void check_chunk_invariance(at::Device device, at::ScalarType dtype, int64_t tokens, int64_t vocab,
                                   int64_t width) {
  INFO(dtype << " tokens " << tokens << " vocab " << vocab);
  Draws random(3, device);
  const at::Tensor hidden = random.normal({tokens, width}, dtype);
  const at::Tensor weight = random.normal({vocab, width}, dtype, 0.2);
  const at::Tensor targets = random.integers(0, vocab, {tokens});
  const ChunkedLoss whole = run_loss(hidden, weight, targets, tokens, {.vocab = vocab});
  for (const int64_t chunks : {4, 16}) {
    const ChunkedLoss part = run_loss(hidden, weight, targets, tokens / chunks, {.vocab = vocab});
    // cuBLAS may choose another order of sums for another row count, so bf16 logits may differ by a rounding.
    const double unit = dtype == at::kFloat ? 1e-6 : 1e-4;
    CHECK(relative_error(part.sums.loss, whole.sums.loss) < unit);
    CHECK(relative_error(part.dweight, whole.dweight) < 10 * unit);
    CHECK(relative_error(part.dhidden, whole.dhidden) < (dtype == at::kFloat ? 1e-5 : 1e-2));
  }
}

}  // namespace narrowgauge::test
