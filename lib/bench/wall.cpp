#include "lib/bench/wall.h"

#include <algorithm>

#include "lib/bench/attention.h"
#include "lib/bench/gemm.h"
#include "lib/bench/kernel_cases.h"
#include "lib/bench/kernels.h"
#include "lib/bench/traffic.h"

namespace narrowgauge::bench {

Json measure_wall(const Machine& machine, const Config& config) {
  const int64_t micro_batch = std::max<int64_t>(1, config.train.micro_batch);
  const int64_t rows = micro_batch * config.data.context;
  const double copy = measure_copies(machine)["best_gb_s"];
  const auto median = [&](const Measured& one) -> double {
    return measure_case(machine, one, copy)["median_us"];
  };
  const int64_t chunk = std::min(rows, config.memory.loss_chunk);
  const Json gemm = measure_gemm(machine, config, rows);
  const Json attention = measure_attention(machine, config, micro_batch);
  double optimizer = 0;
  for (const Measured& one : optimizer_cases(machine.device(), config, {config.optim.master})) {
    optimizer += median(one);
  }
  Json wall = {{"copy_gb_s", copy},
               {"gemm", gemm["us_per_token"]},
               {"attention", fastest_attention(attention, config.train.is_deterministic())},
               {"traffic", least_traffic(config.model) / copy * 1e-3},
               {"loss", median(loss_cases(machine.device(), config.model, chunk).front()) /
                            static_cast<double>(chunk)},
               {"optimizer", optimizer / static_cast<double>(config.train.tokens_per_step)}};
  double sum = 0;
  for (const char* part : {"gemm", "attention", "traffic", "loss", "optimizer"})
    sum += wall[part].get<double>();
  wall["us_per_token"] = sum;
  wall["tokens_per_second"] = 1e6 / sum;
  return wall;
}

}  // namespace narrowgauge::bench
