#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/normal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "lib/bench/kernel_cases.h"
#include "lib/ops/rms_norm.h"

namespace narrowgauge::bench {
namespace {

// x, dy, residual and rstd as forward leaves it, and the outputs.
struct NormTensors {
  NormTensors(at::Device device, int64_t rows, int64_t cols, double eps)
      : x(random_normal(device, {rows, cols}, at::kBFloat16)),
        dy(random_normal(device, {rows, cols}, at::kBFloat16)),
        residual(random_normal(device, {rows, cols}, at::kBFloat16)),
        out(at::empty_like(x)),
        weight(random_normal(device, {cols}, at::kBFloat16)),
        rstd(at::empty({rows}, at::TensorOptions(at::kFloat).device(device))),
        dweight(at::zeros({cols}, at::TensorOptions(at::kFloat).device(device))) {
    ops::rms_norm_forward(out, rstd, x, weight, eps);
  }
  at::Tensor x, dy, residual, out, weight, rstd, dweight;
};

}  // namespace

at::Tensor random_normal(at::Device device, at::IntArrayRef sizes, at::ScalarType dtype, double deviation) {
  return at::normal(0.0, deviation, sizes, std::nullopt, at::TensorOptions(dtype).device(device));
}

at::Tensor random_tokens(at::Device device, int64_t count, int64_t vocab) {
  return at::randint(vocab, {count}, at::TensorOptions(at::kInt).device(device));
}

std::vector<Measured> norm_cases(at::Device device, const ModelConfig& model, int64_t rows) {
  const int64_t cols = model.hidden_size;
  const double eps = model.norm_eps;
  const double matrix = 2.0 * static_cast<double>(rows * cols);
  const double per_row = 4.0 * static_cast<double>(rows);
  const auto tensors = [=] { return std::make_shared<NormTensors>(device, rows, cols, eps); };
  const auto footprint = [=](int matrices) { return static_cast<int64_t>(matrix) * matrices; };
  const std::string shape = fmt::format("{} x {}", rows, cols);
  return {
      {.name = "rms_norm",
       .shape = shape,
       .bytes = 2 * matrix + per_row,
       .prepare =
           [=] {
             const auto t = tensors();
             return Prepared{
                 .launch = [t, eps] { ops::rms_norm_forward(t->out, t->rstd, t->x, t->weight, eps); },
                 .eager = [t, eps, cols] { (void)at::rms_norm(t->x, {cols}, t->weight, eps); },
                 .footprint = footprint(2)};
           }},
      {.name = "add_rms_norm",
       .shape = shape,
       .bytes = 4 * matrix + per_row,
       .prepare =
           [=] {
             const auto t = tensors();
             return Prepared{
                 .launch =
                     [t, eps] {
                       ops::add_rms_norm_forward(t->dy, t->out, t->rstd, t->x, t->residual, t->weight, eps);
                     },
                 .eager = [t, eps,
                           cols] { (void)at::rms_norm(at::add(t->x, t->residual), {cols}, t->weight, eps); },
                 .footprint = footprint(4)};
           }},
      {.name = "rms_norm_backward",
       .shape = shape,
       .bytes = 4 * matrix + per_row,
       .prepare =
           [=] {
             const auto t = tensors();
             return Prepared{.launch =
                                 [t] {
                                   ops::rms_norm_backward(t->out, t->dweight, t->dy, t->x, t->weight, t->rstd,
                                                          t->residual);
                                 },
                             .eager =
                                 [t, cols] {
                                   const auto [dx, dweight] = at::_fused_rms_norm_backward(
                                       t->dy, t->x, {cols}, t->rstd.unsqueeze(1), t->weight, {true, true});
                                   (void)at::add(dx, t->residual);
                                 },
                             .footprint = footprint(4)};
           }},
      {.name = "rms_norm_backward, normed",  // and what forward gave once more
       .shape = shape,
       .bytes = 5 * matrix + per_row,
       .prepare =
           [=] {
             const auto t = tensors();
             const auto normed = std::make_shared<at::Tensor>(at::empty_like(t->x));
             return Prepared{.launch =
                                 [t, normed] {
                                   ops::rms_norm_backward(t->out, t->dweight, t->dy, t->x, t->weight, t->rstd,
                                                          t->residual, *normed);
                                 },
                             .eager =
                                 [t, cols, eps] {
                                   (void)at::rms_norm(t->x, {cols}, t->weight, eps);
                                   const auto [dx, dweight] = at::_fused_rms_norm_backward(
                                       t->dy, t->x, {cols}, t->rstd.unsqueeze(1), t->weight, {true, true});
                                   (void)at::add(dx, t->residual);
                                 },
                             .footprint = footprint(5)};
           }},
  };
}

}  // namespace narrowgauge::bench
