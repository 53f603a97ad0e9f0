#include "lib/bench/gemm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lib/base/log.h"
#include "lib/bench/chunked_loss.h"
#include "lib/bench/kernel_cases.h"
#include "lib/ops/choices.h"
#include "lib/ops/linear.h"
#include "lib/train/kernel_choices.h"

namespace narrowgauge::bench {
namespace {

// y (rows, outputs) = x (rows, inputs) w^T, `count` times in the model.
struct Product {
  const char* name;
  int64_t outputs;
  int64_t inputs;
  int64_t count;
  int64_t rows;
  at::ScalarType gradient;  // dtype that the weight's gradient is accumulated in
};

std::vector<Product> products(const Config& config, int64_t rows) {
  const ModelConfig& m = config.model;
  const at::ScalarType low = config.memory.grad_dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  return {{"qkv", m.qkv_width(), m.hidden_size, m.layers, rows, low},
          {"attention_out", m.hidden_size, m.query_width(), m.layers, rows, low},
          {"gate_up", 2 * m.ffn_size, m.hidden_size, m.layers, rows, low},
          {"down", m.hidden_size, m.ffn_size, m.layers, rows, low},
          {"head", m.vocab_size, m.hidden_size, 1, std::min(rows, config.memory.loss_chunk), at::kFloat}};
}

struct ProductTensors {
  ProductTensors(at::Device device, const Product& p)
      : x(random_normal(device, {p.rows, p.inputs}, at::kBFloat16)),
        y(random_normal(device, {p.rows, p.outputs}, at::kBFloat16)),
        w(random_normal(device, {p.outputs, p.inputs}, at::kBFloat16, 0.02)),
        dx(at::empty({p.rows, p.inputs}, x.options())),
        out(at::empty({p.rows, p.outputs}, x.options())),
        dw(at::zeros({p.outputs, p.inputs}, x.options().dtype(p.gradient))) {}
  [[nodiscard]] int64_t footprint() const {
    return static_cast<int64_t>(x.nbytes() + y.nbytes() + w.nbytes());
  }
  at::Tensor x, y, w, dx, out, dw;
};

// For each direction whether the chosen algorithm is given scratch, null where there is no choice.
std::array<Json, 3> uses_of_workspace(const Product& p) {
  const std::array<std::string, 3> keys = ops::linear_keys(
      {.rows = p.rows, .in = p.inputs, .out = p.outputs, .y_stride = p.outputs, .grad_dtype = p.gradient});
  std::array<Json, 3> uses;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto choice = ops::choices().find(keys[i]);
    if (choice && choice->is_object()) uses[i] = choice->value("workspace", Json());
  }
  return uses;
}

using Run = void (*)(const ProductTensors&);
struct Direction {
  const char* name;
  Run run;
};
constexpr Direction kDirections[] = {
    {"forward", [](const ProductTensors& t) { ops::linear_forward(t.out, t.x, t.w); }},
    {"input_grad", [](const ProductTensors& t) { ops::linear_input_grad(t.dx, t.y, t.w); }},
    {"weight_grad", [](const ProductTensors& t) { ops::linear_weight_grad(t.dw, t.y, t.x); }},
};

}  // namespace

Json measure_gemm(const Machine& machine, const Config& config, int64_t rows) {
  Config sized = config;
  sized.data.context = rows;
  sized.train.micro_batch = 1;
  const train::KernelChoices kernels =
      train::choose_kernels(sized, machine.compute(), machine.timing_bytes(), "", {});
  Json list = Json::array();
  double total = 0;
  for (const Product& product : products(config, rows)) {
    const double flops =
        2.0 * static_cast<double>(product.rows) * static_cast<double>(product.outputs * product.inputs);
    const std::array<Json, 3> workspace = uses_of_workspace(product);
    for (size_t d = 0; d < std::size(kDirections); ++d) {
      const Direction& direction = kDirections[d];
      std::vector<Prepared> sets = rotating_sets(machine, [&] {
        const auto t = std::make_shared<ProductTensors>(machine.device(), product);
        return Prepared{.launch = [t, run = direction.run] { run(*t); }, .footprint = t->footprint()};
      });
      const Spread time = time_sets(machine, sets);
      sets.clear();
      release_cached_memory();
      Json row = {{"name", product.name},
                  {"direction", direction.name},
                  {"shape", fmt::format("{} x {} x {}", product.rows, product.outputs, product.inputs)},
                  {"count", product.count}};
      row.update(to_json(time));
      row["workspace"] = workspace[d];
      row["tflops"] = flops / time.median * 1e-6;
      list.push_back(row);
      total += time.median * static_cast<double>(product.count) / static_cast<double>(product.rows);
    }
  }
  return {{"rows", rows}, {"algorithms", kernels.gemm}, {"products", list}, {"us_per_token", total}};
}

Json bench_gemm(Machine& machine, const Config& config, const std::vector<int64_t>& rows) {
  Json result = machine.head("gemm");
  Json runs = Json::array();
  for (const int64_t count : rows) {
    log_info(fmt::format("bench: matrix products of {} rows", count));
    Json run = measure_gemm(machine, config, count);
    run["loss"] = measure_chunked_loss(machine, config, count);
    runs.push_back(std::move(run));
  }
  result["runs"] = runs;
  result["clocks_end"] = machine.clocks();
  return result;
}

}  // namespace narrowgauge::bench
