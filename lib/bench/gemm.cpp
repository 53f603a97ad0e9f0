#include "lib/bench/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lib/base/log.h"
#include "lib/bench/chunked_loss.h"
#include "lib/bench/products.h"
#include "lib/ops/choices.h"
#include "lib/train/kernel_choices.h"

namespace narrowgauge::bench {
namespace {

// A linear layer that the model has `count` times.
struct Product {
  const char* name;
  int64_t count;
  ops::LinearShape shape;
};

std::vector<Product> products(const Config& config, int64_t rows) {
  const ModelConfig& m = config.model;
  const at::ScalarType low = config.memory.grad_dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  const auto product = [&](const char* name, int64_t count, int64_t out, int64_t in) {
    return Product{name, count, {.rows = rows, .in = in, .out = out, .y_stride = out, .grad_dtype = low}};
  };
  std::vector<Product> all{product("qkv", m.layers, m.qkv_width(), m.hidden_size),
                           product("attention_out", m.layers, m.hidden_size, m.query_width()),
                           product("gate_up", m.layers, 2 * m.ffn_size, m.hidden_size),
                           product("down", m.layers, m.hidden_size, m.ffn_size),
                           product("head", 1, m.vocab_size, m.hidden_size)};
  ops::LinearShape& head = all.back().shape;
  head.rows = std::min(rows, config.memory.loss_chunk);
  head.y_stride = ops::padded_row(head.out, 2);
  head.grad_dtype = at::kFloat;
  return all;
}

// For each direction whether the chosen algorithm is given scratch, null where there is no choice.
std::array<Json, 3> uses_of_workspace(const ops::LinearShape& shape) {
  const std::array<std::string, 3> keys = ops::linear_keys(shape);
  std::array<Json, 3> uses;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto choice = ops::choices().find(keys[i]);
    if (choice && choice->is_object()) uses[i] = choice->value("workspace", Json());
  }
  return uses;
}

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
    const ops::LinearShape& shape = product.shape;
    const double flops = 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.out * shape.in);
    const std::array<Json, 3> workspace = uses_of_workspace(shape);
    for (const Direction direction : kDirections) {
      const Spread time = time_sets(machine.gpu(), rotating_sets(machine.gpu(), [&] {
                                      return prepare_product(machine.device(), shape, direction);
                                    }));
      release_cached_memory();
      Json row = {{"name", product.name},
                  {"direction", direction_name(direction)},
                  {"shape", fmt::format("{} x {} x {}", shape.rows, shape.out, shape.in)},
                  {"count", product.count}};
      row.update(to_json(time));
      row["workspace"] = workspace[static_cast<size_t>(direction)];
      row["tflops"] = flops / time.median * 1e-6;
      list.push_back(row);
      total += time.median * static_cast<double>(product.count) / static_cast<double>(shape.rows);
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
