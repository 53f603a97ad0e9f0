#include "lib/train/reporter.h"

#include <fmt/format.h>

#include <chrono>

#include "lib/base/log.h"
#include "lib/base/units.h"
#include "lib/plan/cards.h"
#include "lib/plan/time.h"

namespace narrowgauge::train {
namespace {

using nlohmann::ordered_json;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

// Seconds that the card needs for one token's model FLOPs; nothing for fp32, which the rate is not about.
std::optional<double> ideal_seconds(const Config& config, const ComputeDevice& device) {
  const auto rate = plan::card_bf16_rate(device.name);
  if (!rate || config.train.dtype != "bf16") return std::nullopt;
  return plan::model_flops_per_token(config.model, config.data.context) / *rate;
}

}  // namespace

Reporter::Reporter(const RunFolder& folder, const Config& config, const ComputeDevice& device,
                   DeviceMemory& memory, int64_t first_step)
    : rows_(folder.metrics(), first_step),
      progress_(config.log, config.train.steps),
      memory_(memory),
      on_gpu_(device.device.is_cuda()),
      z_loss_(config.train.z_loss > 0),
      steps_(config.train.steps),
      tokens_per_step_(config.train.tokens_per_step),
      ideal_seconds_per_token_(ideal_seconds(config, device)),
      start_(steady_seconds()) {}

void Reporter::event(const char* name, int64_t step, const ordered_json& facts) {
  ordered_json row = {{"event", name}, {"step", step}};
  row.update(facts);
  rows_.write(row);
}

void Reporter::step(const QueuedStep& queued, const StepResult& result) {
  const double now = steady_seconds();
  throughput_.add(now, tokens_per_step_);
  const auto counted = static_cast<double>(std::max<int64_t>(1, queued.counted));
  StepReport report{.step = queued.step,
                    .loss = result.loss_sum / counted,
                    .z_loss = result.z_loss_sum / counted,
                    .lse_mean = result.lse_sum / counted,
                    .learning_rate = queued.learning_rate,
                    .grad_norm = result.state.grad_norm,
                    .tokens = queued.tokens,
                    .tokens_per_second = throughput_.tokens_per_second(),
                    .mfu = std::nullopt,
                    .data_wait_ms = queued.data_wait_ms,
                    .skipped = result.state.skipped_total};
  if (report.tokens_per_second && ideal_seconds_per_token_) {
    report.mfu = *report.tokens_per_second * *ideal_seconds_per_token_;
  }
  ordered_json row = {{"loss", report.loss},
                      {"lr", report.learning_rate},
                      {"grad_norm", report.grad_norm},
                      {"tokens", report.tokens},
                      {"tokens_per_second", or_null(report.tokens_per_second)},
                      {"mfu", or_null(report.mfu)},
                      {"data_wait_ms", report.data_wait_ms},
                      {"skipped", report.skipped},
                      {"lse_mean", report.lse_mean}};
  if (z_loss_) row["z_loss"] = report.z_loss;
  event("step", report.step, row);
  if (result.state.skip != 0) {
    log_warn(fmt::format("step {}: the gradient is not finite, nothing was updated ({} in a row)",
                         report.step, result.state.skipped_in_row));
  }
  if (!progress_.due(report.step, now)) return;
  const auto pace = throughput_.seconds_per_step();
  const double eta = pace ? *pace * static_cast<double>(steps_ - report.step) : -1;
  progress_.show(progress_line(report, steps_, memory_.sample().device, eta), now);
}

void Reporter::memory(int64_t step, const std::vector<MemoryRow>& rows) {
  const MemoryPeaks peaks = memory_.sample();
  ordered_json facts = {{"allocated", peaks.allocated},
                        {"reserved", peaks.reserved},
                        {"device", peaks.device},
                        {"cap", memory_.cap()}};
  for (const MemoryRow& row : rows) {
    facts["categories"][row.category] = {{"predicted", or_null(row.predicted)},
                                         {"measured", or_null(row.measured)}};
  }
  event("memory", step, facts);
  if (!rows.empty()) log_info("memory, predicted (measured): " + memory_text(rows));
  log_info(on_gpu_ ? fmt::format(
                         "peak memory: {} allocated, {} reserved, {} of the device (cap of the allocator {})",
                         format_bytes(peaks.allocated), format_bytes(peaks.reserved),
                         format_bytes(peaks.device), format_bytes(memory_.cap()))
                   : fmt::format("peak memory: {} of the process", format_bytes(peaks.device)));
}

void Reporter::restart_clock() { throughput_.restart(steady_seconds()); }

double Reporter::seconds() const { return steady_seconds() - start_; }

}  // namespace narrowgauge::train
