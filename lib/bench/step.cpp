#include "lib/bench/step.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "cuda/launch_overlap.h"
#include "lib/base/log.h"
#include "lib/bench/breakdown.h"
#include "lib/bench/profiler.h"
#include "lib/bench/slow_host.h"
#include "lib/bench/stats.h"
#include "lib/bench/trainee.h"
#include "lib/bench/wall.h"
#include "lib/plan/cards.h"

namespace narrowgauge::bench {
namespace {

// Milliseconds of each of `steps` steps, between events on the stream.
std::vector<double> time_steps(Trainee& trainee, at::Device device, int64_t steps) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  std::vector<c10::Event> ends;
  const auto mark = [&] {
    ends.emplace_back(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    ends.back().record(guard.getStream(device));
  };
  mark();
  for (int64_t i = 0; i < steps; ++i) {
    trainee.run_step();
    mark();
  }
  ends.back().synchronize();
  std::vector<double> times;
  for (size_t i = 1; i < ends.size(); ++i) times.push_back(ends[i - 1].elapsedTime(ends[i]));
  return times;
}

Json measure_speed(Trainee& trainee, Machine& machine, const StepOptions& options) {
  train::Residency residency([&] { return trainee.read_memory(); });
  residency.calibrate();
  for (int64_t i = 0; i < options.warmup; ++i) trainee.run_step();
  synchronise(machine.device());
  machine.memory().tighten();  // the library workspaces exist now
  const std::vector<double> times = time_steps(trainee, machine.device(), options.steps);
  const train::MemoryPeaks peaks = machine.memory().sample();
  std::vector<double> rates;
  for (const double milliseconds : times) {
    rates.push_back(static_cast<double>(trainee.tokens_per_step()) / milliseconds * 1e3);
  }
  const Spread rate = spread(rates);
  const Json model = trainee.describe();
  Json speed = model;
  speed["tokens_per_second"] = {{"median", rate.median}, {"p20", rate.p20}, {"p80", rate.p80}};
  speed["step_ms"] = percentile(times, 0.5);
  const auto card = plan::card_bf16_rate(machine.compute().name);
  speed["mfu"] = card ? Json(rate.median * model["flops_per_token"].get<double>() / *card) : Json(nullptr);
  speed["peak_bytes"] = {
      {"allocated", peaks.allocated}, {"reserved", peaks.reserved}, {"device", peaks.device}};
  speed["spilled_bytes"] = residency.spilled_bytes();
  speed.update(trainee.outcome());
  return speed;
}

// One step after another that only sets the profiler up.
Json measure_breakdown(Trainee& trainee, at::Device device) {
  std::vector<KernelEvent> events;
  for (int i = 0; i < 2; ++i) {
    synchronise(device);
    events = record_kernels([&] {
      trainee.run_step();
      synchronise(device);
    });
  }
  const Breakdown breakdown = break_down(std::move(events));
  Json categories = Json::object();
  for (size_t i = 0; i < kCategories; ++i) {
    categories[category_name(static_cast<Category>(i))] = breakdown.milliseconds[i];
  }
  Json kernels = Json::array();
  for (const KernelTotal& kernel : breakdown.kernels) {
    kernels.push_back({{"name", kernel.name},
                       {"category", category_name(kernel.category)},
                       {"count", kernel.count},
                       {"ms", kernel.milliseconds}});
  }
  return {{"span_ms", breakdown.span},
          {"busy_ms", breakdown.busy},
          {"gaps_ms", breakdown.gaps()},
          {"categories_ms", categories},
          {"kernels", kernels}};
}

}  // namespace

Json bench_step(Machine& machine, const Config& config, const StepOptions& options) {
  Json result = machine.head("step");
  Config resolved = config;
  {
    Trainee trainee(machine, config);
    const SlowHost host(options.launch_delay);
    cuda::set_launch_overlap(options.overlap);
    result["step"] = measure_speed(trainee, machine, options);
    if (options.launch_delay > 0) result["step"]["launch_delay_us"] = options.launch_delay;
    if (!options.overlap) result["step"]["launch_overlap"] = false;
    result["clocks_end"] = machine.clocks();
    resolved.train.micro_batch = result["step"]["micro_batch"];
    resolved.train.deterministic = result["step"]["deterministic"].get<bool>() ? "true" : "false";
    log_info(
        fmt::format("bench: {:.0f} tokens/s", result["step"]["tokens_per_second"]["median"].get<double>()));
    if (!options.speed_only) result["breakdown"] = measure_breakdown(trainee, machine.device());
  }
  cuda::set_launch_overlap(true);
  if (options.speed_only || config.train.dtype != "bf16") return result;  // the wall is one of bf16
  release_cached_memory();
  result["wall"] = measure_wall(machine, resolved);
  result["wall"]["reached"] = result["step"]["tokens_per_second"]["median"].get<double>() /
                              result["wall"]["tokens_per_second"].get<double>();
  return result;
}

}  // namespace narrowgauge::bench
