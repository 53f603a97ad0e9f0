#include "lib/bench/kernels.h"

#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <algorithm>

#include "lib/base/log.h"
#include "lib/bench/kernel_cases.h"
#include "lib/bench/targets.h"

namespace narrowgauge::bench {
namespace {

double gigabytes_a_second(double bytes, double microseconds) { return bytes / microseconds * 1e-3; }

// The launch of one set after the other, then what plain ATen takes for the same; 0 where there is none.
double time_eager(const Gpu& gpu, const std::vector<Prepared>& sets) {
  std::vector<std::function<void()>> launches;
  for (const Prepared& set : sets) {
    if (set.eager) launches.push_back(set.eager);
  }
  return launches.empty() ? 0 : time_launches(gpu, launches).median;
}

}  // namespace

Prepared prepare_copy(at::Device device, int64_t bytes) {
  const int64_t elements = bytes / 4;  // bf16, once read and once written
  const at::Tensor from = random_normal(device, {elements}, at::kBFloat16);
  const at::Tensor to = at::empty_like(from);
  return {.launch = [=] { to.copy_(from); }, .footprint = bytes};
}

Spread time_copy(const Gpu& gpu, int64_t bytes) {
  return time_sets(gpu, rotating_sets(gpu, [&] { return prepare_copy(gpu.device, bytes); }));
}

Json measure_copies(const Machine& machine) {
  Json sizes = Json::array();
  double best = 0;
  for (const int64_t mebibytes : {32, 64, 128, 256, 512, 1024, 2048}) {
    const int64_t bytes = mebibytes << 20;
    const Spread time = time_copy(machine.gpu(), bytes);
    const double rate = gigabytes_a_second(static_cast<double>(bytes), time.median);
    best = std::max(best, rate);
    Json row = {{"bytes", bytes}};
    row.update(to_json(time));
    row["gb_s"] = rate;
    sizes.push_back(row);
  }
  release_cached_memory();
  return {{"best_gb_s", best}, {"sizes", sizes}};
}

Json measure_case(const Machine& machine, const Measured& measured, double best_copy) {
  std::vector<Prepared> sets = rotating_sets(machine.gpu(), measured.prepare);
  const Spread time = time_sets(machine.gpu(), sets);
  const double eager = time_eager(machine.gpu(), sets);
  sets.clear();
  release_cached_memory();
  const double rate = gigabytes_a_second(measured.bytes, time.median);
  const auto target = find_target(measured.name);
  Json row = {{"name", measured.name}, {"shape", measured.shape}, {"bytes", measured.bytes}};
  row.update(to_json(time));
  row["gb_s"] = rate;
  row["of_copy"] = rate / best_copy;
  const auto most = int64_t{2} << 30;
  const Spread copy = time_copy(machine.gpu(), std::min(most, static_cast<int64_t>(measured.bytes)));
  const double copied = std::min(static_cast<double>(most), measured.bytes);
  row["of_equal_copy"] = rate / gigabytes_a_second(copied, copy.median);
  row["eager_us"] = eager > 0 ? Json(eager) : Json(nullptr);
  row["target"] = target_text(target);
  row["verdict"] = verdict(target, rate / best_copy, time.median * 1e-3);
  release_cached_memory();
  return row;
}

Json bench_kernels(Machine& machine, const Config& config) {
  Json result = machine.head("kernels");
  result["copy"] = measure_copies(machine);
  const double best_copy = result["copy"]["best_gb_s"];
  std::vector<Measured> cases;
  const auto add = [&](std::vector<Measured> more) {
    for (Measured& one : more) cases.push_back(std::move(one));
  };
  for (const int64_t rows : {4096, 16384}) {
    const int64_t context = std::min<int64_t>(config.data.context, rows);
    add(norm_cases(machine.device(), config.model, rows));
    add(elementwise_cases(machine.device(), config.model, rows, context));
    add(embedding_cases(machine.device(), config.model, rows));
  }
  add(loss_cases(machine.device(), config.model, config.memory.loss_chunk));
  add(optimizer_cases(machine.device(), config, {"stochastic", "split", "fp32"}));
  Json rows = Json::array();
  for (const Measured& one : cases) {
    log_info(fmt::format("bench: {} {}", one.name, one.shape));
    rows.push_back(measure_case(machine, one, best_copy));
  }
  result["kernels"] = rows;
  result["clocks_end"] = machine.clocks();
  return result;
}

}  // namespace narrowgauge::bench
