#include "lib/train/determinism.h"

#include <fmt/format.h>

#include <stdexcept>

#include "lib/base/units.h"
#include "lib/ops/attention_choice.h"
#include "lib/train/setup.h"

namespace narrowgauge::train {
namespace {

constexpr int64_t kSlack = int64_t{512} << 20;  // library modules, batches

Determinism timed(const Config& config, const ComputeDevice& device, double products_ms, int64_t cap) {
  model::TransformerOptions options = model_options(config, device.device);
  const auto job = [&](bool deterministic) {
    set_numerics(deterministic);
    options.deterministic = deterministic;
    return model::attention_job(config.model, options, options.micro_batch, options.max_context);
  };
  const std::string& request = config.train.attention;
  const auto layers = static_cast<double>(config.model.layers);
  const double fastest = layers * ops::attention_milliseconds(request, job(false));
  const ops::AttentionJob exact = job(true);
  const double with = layers * ops::attention_milliseconds(request, exact);
  const ops::Attention attention{.shape = exact.shape,
                                 .kernel = ops::choose_attention(request, exact).kernel,
                                 .deterministic = true,
                                 .documents = {},
                                 .workspace_limit = exact.workspace_limit};
  return decide_determinism({.extra_ms = with - fastest,
                             .micro_batch_ms = products_ms + fastest,
                             .extra_bytes = ops::attention_scratch_bytes(attention, device.device),
                             .free_bytes = cap - planned_bytes(config) - kSlack});
}

}  // namespace

Determinism decide_determinism(const DeterminismPrice& price) {
  const double part = price.extra_ms / price.micro_batch_ms;
  if (!(part <= kDeterminismLimit)) {
    return {false, fmt::format("auto: it would cost up to {:.1f} % of a step, more than {:.0f} %", 100 * part,
                               100 * kDeterminismLimit)};
  }
  if (price.extra_bytes > price.free_bytes) {
    return {false, fmt::format("auto: its {} of scratch do not fit beside this plan",
                               format_bytes(price.extra_bytes))};
  }
  return {true, part > 0 ? fmt::format("auto: it costs at most {:.1f} % of a step", 100 * part)
                         : "auto: it costs nothing here"};
}

Determinism resolve_determinism(const Config& config, const ComputeDevice& device, double products_ms,
                                int64_t cap) {
  Determinism answer{.on = config.train.is_deterministic(), .why = {}};
  if (config.train.deterministic == "auto") {
    if (!device.device.is_cuda() || config.train.dtype != "bf16") {
      answer = {true, "auto: it costs nothing here"};
    } else if (products_ms <= 0) {
      answer = {false, "auto: its price is not known without train.tune_kernels"};
    } else {
      try {
        answer = timed(config, device, products_ms, cap);
      } catch (const std::invalid_argument& error) {
        answer = {false, fmt::format("auto: {}", error.what())};
      }
    }
  }
  set_numerics(answer.on);
  return answer;
}

}  // namespace narrowgauge::train
