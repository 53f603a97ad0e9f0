#include "lib/train/start_report.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include "lib/base/log.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/base/version.h"

namespace narrowgauge::train {
namespace {

std::string recompute_text(const std::vector<RecomputeLevel>& levels) {
  std::vector<std::string> names;
  for (const RecomputeLevel level : levels) names.emplace_back(recompute_name(level));
  return join(names, ",");
}

std::string validation_text(const TokenRange& val) {
  if (!val.dataset) return "no validation";
  return fmt::format("{} tokens of validation",
                     format_count(static_cast<double>(val.range.end - val.range.begin)));
}

}  // namespace

void report_start(const Session& session, const TrainRequest& request, Reporter& reporter) {
  const Config& config = session.config;
  const model::Transformer& model = *session.model;
  const int64_t parameters = config.model.parameter_count();
  const bool deterministic = session.determinism.on || session.device.device.is_cpu();
  const std::string recompute = recompute_text(config.memory.recompute);
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
}

}  // namespace narrowgauge::train
