#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>

#include "lib/bench/kernel_cases.h"
#include "lib/ops/cross_entropy.h"
#include "lib/ops/embedding.h"
#include "lib/ops/sum.h"
#include "lib/ops/token_order.h"

namespace narrowgauge::bench {
namespace {

constexpr int64_t kReductionSum = 2;  // at::Reduction::Sum

struct LossTensors {
  LossTensors(at::Device device, int64_t rows, int64_t vocab)
      : logits(random_normal(device, {rows, vocab}, at::kBFloat16)),
        targets(random_tokens(device, rows, vocab)),
        wide_targets(targets.to(at::kLong)) {
    const auto fp32 = at::TensorOptions(at::kFloat).device(device);
    losses = at::empty({rows}, fp32);
    lse = at::empty({rows}, fp32);
    scale = at::ones({}, fp32);
  }
  at::Tensor logits, targets, wide_targets, losses, lse, scale;
};

void loss_eagerly(const LossTensors& t, bool gradient) {
  const at::Tensor log_p = at::_log_softmax(t.logits.to(at::kFloat), 1, false);
  const auto [loss, weight] =
      at::nll_loss_forward(log_p, t.wide_targets, {}, kReductionSum, ops::kIgnoreIndex);
  if (!gradient) return;
  const at::Tensor d =
      at::nll_loss_backward(t.scale, log_p, t.wide_targets, {}, kReductionSum, ops::kIgnoreIndex, weight);
  (void)at::_log_softmax_backward_data(d, log_p, 1, at::kFloat).to(at::kBFloat16);
}

Measured loss_case(at::Device device, int64_t rows, int64_t vocab, bool gradient) {
  const double matrix = 2.0 * static_cast<double>(rows * vocab);
  return {.name = gradient ? "cross_entropy" : "cross_entropy_loss_only",
          .shape = fmt::format("{} x {}", rows, vocab),
          .bytes = (gradient ? 2 : 1) * matrix + 12.0 * static_cast<double>(rows),
          .prepare = [=] {
            const auto t = std::make_shared<LossTensors>(device, rows, vocab);
            return Prepared{.launch =
                                [=] {
                                  ops::cross_entropy_in_place(t->logits, t->losses, t->lse, t->targets,
                                                              t->scale,
                                                              {.vocab = vocab, .gradient = gradient});
                                },
                            .eager = [=] { loss_eagerly(*t, gradient); },
                            .footprint = static_cast<int64_t>(matrix)};
          }};
}

// What training finds on the host for every batch.
at::Tensor order_of(const at::Tensor& tokens) {
  const at::Tensor host = tokens.cpu();
  const at::Tensor order = at::empty_like(host);
  ops::token_order(host.const_data_ptr<int32_t>(), host.numel(), order.data_ptr<int32_t>());
  return order.to(tokens.device());
}

Measured sum_case(at::Device device, int64_t count) {
  return {.name = "sum",
          .shape = fmt::format("{}", count),
          .bytes = 4.0 * static_cast<double>(count),
          .prepare = [=] {
            const at::Tensor x = random_normal(device, {count}, at::kFloat);
            const at::Tensor out = at::zeros({}, x.options());
            return Prepared{.launch = [=] { ops::sum_into({{.out = out, .x = x}}); },
                            .eager = [=] { (void)at::sum(x); },
                            .footprint = 4 * count};
          }};
}

}  // namespace

std::vector<Measured> loss_cases(at::Device device, const ModelConfig& model, int64_t rows) {
  return {loss_case(device, rows, model.vocab_size, true), loss_case(device, rows, model.vocab_size, false),
          sum_case(device, rows)};
}

std::vector<Measured> embedding_cases(at::Device device, const ModelConfig& model, int64_t rows) {
  const int64_t vocab = model.vocab_size;
  const int64_t width = model.hidden_size;
  const double matrix = 2.0 * static_cast<double>(rows * width);
  const double different =  // expected different ids among uniform ones
      static_cast<double>(vocab) *
      (1 - std::pow(1 - 1 / static_cast<double>(vocab), static_cast<double>(rows)));
  const double touched = different * static_cast<double>(width);
  const std::string shape = fmt::format("{} x {}", rows, width);
  return {
      {.name = "embedding",
       .shape = shape,
       .bytes = matrix + 2 * touched + 4.0 * static_cast<double>(rows),
       .prepare =
           [=] {
             const at::Tensor weight = random_normal(device, {vocab, width}, at::kBFloat16);
             const at::Tensor tokens = random_tokens(device, rows, vocab);
             const at::Tensor out = at::empty({rows, width}, weight.options());
             return Prepared{.launch = [=] { ops::embedding_forward(out, weight, tokens); },
                             .eager = [=] { (void)at::embedding(weight, tokens); },
                             .footprint = static_cast<int64_t>(matrix + 2 * touched)};
           }},
      {.name = "embedding_backward",
       .shape = shape,
       .bytes = matrix + 8 * touched + 8.0 * static_cast<double>(rows),
       .prepare =
           [=] {
             const at::Tensor dweight =
                 at::zeros({vocab, width}, at::TensorOptions(at::kFloat).device(device));
             const at::Tensor tokens = random_tokens(device, rows, vocab);
             const at::Tensor dy = random_normal(device, {rows, width}, at::kBFloat16);
             const at::Tensor order = order_of(tokens);
             return Prepared{
                 .launch = [=] { ops::embedding_backward(dweight, dy, tokens, order); },
                 .eager = [=] { (void)at::embedding_dense_backward(dy, tokens, vocab, -1, false); },
                 .footprint = static_cast<int64_t>(matrix + 4 * touched)};
           }},
  };
}

}  // namespace narrowgauge::bench
