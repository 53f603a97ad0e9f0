#include "lib/train/progress.h"

#include <fmt/format.h>

#include "lib/base/log.h"
#include "lib/base/units.h"

namespace narrowgauge::train {
namespace {

constexpr double kLiveInterval = 0.2;  // seconds

}  // namespace

std::string progress_line(const StepReport& report, int64_t steps, int64_t memory, double eta) {
  std::string line = fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  norm {:.2f}", report.step, steps,
                                 report.loss, report.learning_rate, report.grad_norm);
  if (report.tokens_per_second) line += fmt::format("  {} tok/s", format_count(*report.tokens_per_second));
  if (report.mfu) line += fmt::format("  MFU {:.1f}%", *report.mfu * 100);
  if (memory > 0) line += fmt::format("  mem {}", format_bytes(memory));
  if (eta >= 0) line += fmt::format("  ETA {}", format_duration(eta));
  if (report.skipped > 0) line += fmt::format("  skipped {}", report.skipped);
  return line;
}

Progress::Progress(const LogConfig& config, int64_t steps)
    : live_(config.progress != "plain" && status_is_live()), every_(config.every), steps_(steps) {}

bool Progress::due(int64_t step, double now) const {
  if (!shown_ || step == steps_) return true;
  return live_ ? now - last_ >= kLiveInterval : step % every_ == 0;
}

void Progress::show(const std::string& line, double now) {
  shown_ = true;
  last_ = now;
  live_ ? show_status(line) : log_info(line);
}

void Progress::clear() const {
  if (live_) show_status("");
}

}  // namespace narrowgauge::train
