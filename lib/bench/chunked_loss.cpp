#include "lib/bench/chunked_loss.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "lib/bench/kernel_cases.h"
#include "lib/bench/targets.h"
#include "lib/bench/timer.h"
#include "lib/ops/linear.h"
#include "lib/ops/linear_cross_entropy.h"

namespace narrowgauge::bench {
namespace {

struct ChunkedLoss {
  ChunkedLoss(at::Device device, const ModelConfig& model, int64_t rows, int64_t chunk)
      : hidden(random_normal(device, {rows, model.hidden_size}, at::kBFloat16)),
        weight(random_normal(device, {model.vocab_size, model.hidden_size}, at::kBFloat16, 0.02)),
        targets(random_tokens(device, rows, model.vocab_size)) {
    const auto fp32 = at::TensorOptions(at::kFloat).device(device);
    const int64_t stride = ops::padded_row(model.vocab_size, 2);
    dweight = at::zeros(weight.sizes(), fp32);
    scale = at::full({}, 1.0 / static_cast<double>(rows), fp32);
    buffers = {
        .losses = at::empty({rows}, fp32),
        .lse = at::empty({rows}, fp32),
        .sums = at::empty({3}, fp32),
        .logits = at::empty({chunk, stride}, hidden.options()).narrow(1, 0, model.vocab_size),
        .dhidden = at::empty(hidden.sizes(), hidden.options()),
    };
  }

  void loss() const {
    ops::linear_cross_entropy(hidden, weight, targets, scale, buffers, dweight, {.vocab = weight.size(0)});
  }

  void products() const {
    const int64_t chunk = buffers.logits.size(0);
    for (int64_t first = 0; first < hidden.size(0); first += chunk) {
      const int64_t n = std::min(chunk, hidden.size(0) - first);
      const at::Tensor x = hidden.narrow(0, first, n);
      const at::Tensor logits = buffers.logits.narrow(0, 0, n);
      ops::linear_forward(logits, x, weight);
      ops::linear_weight_grad(dweight, logits, x);
      ops::linear_input_grad(buffers.dhidden.narrow(0, first, n), logits, weight);
    }
  }

  // Without the logits, which may be smaller than the cache.
  [[nodiscard]] int64_t footprint() const {
    return static_cast<int64_t>(hidden.nbytes() + weight.nbytes() + dweight.nbytes());
  }

  at::Tensor hidden, weight, targets, dweight, scale;
  ops::LossBuffers buffers;
};

}  // namespace

Json measure_chunked_loss(const Machine& machine, const Config& config, int64_t rows) {
  const int64_t chunk = std::min(rows, config.memory.loss_chunk);
  const auto time = [&](void (ChunkedLoss::*work)() const) {
    return time_sets(machine.gpu(), rotating_sets(machine.gpu(), [&] {
                       const auto t =
                           std::make_shared<ChunkedLoss>(machine.device(), config.model, rows, chunk);
                       return Prepared{.launch = [t, work] { ((*t).*work)(); }, .footprint = t->footprint()};
                     }));
  };
  const Spread products = time(&ChunkedLoss::products);
  release_cached_memory();
  const Spread loss = time(&ChunkedLoss::loss);
  release_cached_memory();
  const double ratio = loss.median / products.median;
  return {{"rows", rows},
          {"chunk", chunk},
          {"loss", to_json(loss)},
          {"products", to_json(products)},
          {"ratio", ratio},
          {"target", fmt::format("<= {:.2f}", kMostOfLossProducts)},
          {"verdict", ratio <= kMostOfLossProducts ? "met" : "missed"}};
}

Table chunked_loss_table(const Json& measured) {
  Table table{.title = fmt::format("Loss of {} tokens, {} at once, with its gradients",
                                   measured["rows"].get<int64_t>(), measured["chunk"].get<int64_t>()),
              .columns = {"what", "µs", "p20", "p80", "of the products", "target", ""}};
  const auto row = [](const char* name, const Json& time) {
    std::vector<std::string> cells{name};
    for (const char* key : {"median_us", "p20_us", "p80_us"})
      cells.push_back(fmt::format("{:.1f}", time[key].get<double>()));
    return cells;
  };
  table.rows.push_back(row("its three products alone", measured["products"]));
  std::vector<std::string> loss = row("products and cross-entropy", measured["loss"]);
  loss.push_back(fmt::format("{:.3f}", measured["ratio"].get<double>()));
  loss.push_back(measured["target"].get<std::string>());
  loss.push_back(measured["verdict"].get<std::string>());
  table.rows.push_back(loss);
  return table;
}

}  // namespace narrowgauge::bench
