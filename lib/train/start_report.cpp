#include "lib/train/start_report.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include "lib/base/log.h"
#include "lib/base/units.h"
#include "lib/base/version.h"

namespace narrowgauge::train {
namespace {

std::string validation_text(const TokenRange& val) {
  if (!val.dataset) return "no validation";
  return fmt::format("{} tokens of validation",
                     format_count(static_cast<double>(val.range.end - val.range.begin)));
}

// "GPU speeds measured": how much the predicted tokens/s are worth.
const char* source_of(const plan::Plan& plan) { return plan.estimated ? "estimated" : "from measured rates"; }

}  // namespace

void report_plan(const Session& session, Reporter& reporter) {
  const std::optional<plan::Plan> plan = session.plan();
  if (!plan) return;
  const plan::Moment& peak = plan->memory.moments[plan->memory.peak];
  const bool timed = session.device.device.is_cuda();
  std::string line = fmt::format("plan: micro-batch {}, recompute {}, {} of {} at the peak ({})",
                                 plan->choice.micro_batch, plan::levels_text(plan->choice.levels),
                                 format_bytes(plan->memory.bytes()), format_bytes(plan->budget), peak.name);
  const bool tuned = session.planner->tuned() == plan->choice;
  if (tuned) line += ", as tune found it";
  if (timed) line += fmt::format(", {:.0f} tokens/s {}", plan->tokens_per_second, source_of(*plan));
  if (plan->margin() < 0) {
    log_warn(line + ": more than the budget, as the config wants it; the rehearsal will tell");
  } else {
    log_info(line);
  }
  reporter.event("plan", session.position.step,
                 {{"micro_batch", plan->choice.micro_batch},
                  {"recompute", plan::levels_text(plan->choice.levels)},
                  {"loss_chunk", plan->choice.loss_chunk},
                  {"bytes", plan->memory.bytes()},
                  {"budget", plan->budget},
                  {"moment", peak.name},
                  {"tokens_per_second", timed ? nlohmann::json(plan->tokens_per_second) : nlohmann::json()},
                  {"estimated", plan->estimated},
                  {"tuned", tuned}});
}

void report_start(const Session& session, const TrainRequest& request, Reporter& reporter) {
  const Config& config = session.config;
  const model::Transformer& model = *session.model;
  const int64_t parameters = config.model.parameter_count();
  const bool deterministic = session.determinism.on || session.device.device.is_cpu();
  const std::string recompute = plan::levels_text(plan::fixed_levels(config));
  const int64_t train_tokens = session.corpus.train.range.end - session.corpus.train.range.begin;
  const std::string& why = session.determinism.why;
  log_info(fmt::format("narrowgauge {}: {} parameters on {}, {}, attention {}, {}deterministic{}", kVersion,
                       format_count(static_cast<double>(parameters)), session.device.name, config.train.dtype,
                       ops::describe(model.attention_choice()), deterministic ? "" : "not ",
                       why.empty() ? "" : " (" + why + ")"));
  log_info(
      fmt::format("data: {} tokens of training, {}, {}", format_count(static_cast<double>(train_tokens)),
                  validation_text(session.corpus.val),
                  session.corpus.tokenizer ? "with its tokenizer" : "no tokenizer: samples are token ids"));
  log_info(fmt::format("step: {} sequences of {} tokens in micro-batches of {}{}, recompute {}{}",
                       session.sequences(), config.data.context, config.train.micro_batch,
                       request.config.train.micro_batch == 0 ? " (auto)" : "", recompute,
                       request.config.memory.recompute.empty() ? " (auto)" : ""));
  if (!session.kernels.gemm.empty()) log_info("GEMM: " + session.kernels.gemm);
  reporter.event("start", session.position.step,
                 {{"parameters", parameters},
                  {"device", session.device.name},
                  {"driver", session.device.driver},
                  {"dtype", config.train.dtype},
                  {"attention", ops::attention_kernel_name(model.attention_choice().kernel)},
                  {"gemm", session.kernels.gemm},
                  {"deterministic", deterministic},
                  {"determinism", why},
                  {"recompute", recompute},
                  {"cuda_graphs", session.cuda_graphs},
                  {"micro_batch", config.train.micro_batch},
                  {"sequences", session.sequences()},
                  {"context", config.data.context},
                  {"train_tokens", train_tokens},
                  {"threads", at::get_num_threads()},
                  {"narrowgauge", kVersion},
                  {"torch", TORCH_VERSION}});
  report_plan(session, reporter);
}

}  // namespace narrowgauge::train
