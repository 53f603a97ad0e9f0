#include "lib/train/determinism.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lib/base/units.h"
#include "lib/ops/attention_choice.h"
#include "lib/ops/choices.h"
#include "lib/ops/device.h"
#include "lib/train/planner.h"
#include "lib/train/setup.h"

namespace narrowgauge::train {
namespace {

const char* const kFree = "auto: it costs nothing here";

bool has_price(const Config& config, const ComputeDevice& device) {
  return device.device.is_cuda() && config.train.dtype == "bf16";
}

// What is known without timing.
std::optional<bool> answer_in_force(const Config& config, const ComputeDevice& device) {
  if (config.train.deterministic != "auto") return config.train.is_deterministic();
  if (!has_price(config, device)) return true;
  const auto found = ops::choices().find(determinism_key(config));
  return found && found->is_boolean() ? std::optional(found->get<bool>()) : std::nullopt;
}

// Flash adds dq up in fp32, in as many copies as its blocks need to fill the card when it is deterministic.
int64_t flash_bytes(const ops::AttentionJob& job) {
  const ops::AttentionShape& s = job.shape;
  const int64_t multiprocessors =
      ops::limits_of(at::empty({0}, at::TensorOptions(job.device).dtype(at::kByte))).sm_count;
  const int64_t copies = (multiprocessors + s.batch * s.heads - 1) / (s.batch * s.heads);
  const int64_t boundaries = job.document_mask ? ops::usual_boundaries(s.batch, s.context) : s.batch;
  const int64_t columns = s.heads * ((s.head_dim + 31) / 32 * 32);
  return copies * (s.batch * s.context + 128 * boundaries) * columns * int64_t{sizeof(float)};
}

// Of the whole process, with that scratch of attention's in the slab.
int64_t bytes_with(const Config& config, const ComputeDevice& device, const ops::AttentionScratch& scratch) {
  plan::Surroundings around = surroundings_of(config, device);
  around.attention_scratch = [&](int64_t) {
    return plan::AttentionScratch{.forward = scratch.forward, .backward = scratch.backward};
  };
  Config plain = config;  // the plan's own estimate of flash's scratch is left out too
  plain.train.deterministic = "false";
  return plan::MemoryModel(plain, around).bytes(plan::choice_of(plain));
}

Determinism timed(const Config& config, const ComputeDevice& device, double products_ms, int64_t budget) {
  model::TransformerOptions options = model_options(config, device.device);
  const auto job = [&](bool deterministic) {
    set_numerics(deterministic);
    options.deterministic = deterministic;
    return model::attention_job(config.model, options, options.micro_batch, options.max_context);
  };
  const std::string& request = config.train.attention;
  const auto layers = static_cast<double>(config.model.layers);
  if (ops::choose_attention(request, job(false)).kernel == ops::AttentionKernel::math) return {true, kFree};
  const double fastest = layers * ops::attention_milliseconds(request, job(false));
  const ops::AttentionJob exact = job(true);
  const double with = layers * ops::attention_milliseconds(request, exact);
  const ops::Attention attention{.shape = exact.shape,
                                 .kernel = ops::choose_attention(request, exact).kernel,
                                 .deterministic = true,
                                 .documents = {},
                                 .workspace_limit = exact.workspace_limit};
  const int64_t without = bytes_with(config, device, {});
  const int64_t slab = bytes_with(config, device, ops::attention_scratch(attention, device.device)) - without;
  const bool flash = attention.kernel == ops::AttentionKernel::flash;
  // Attention is timed on whole sequences; documents shorten it, so that it is no measure of a step.
  const double length = products_ms + (config.data.document_mask ? 0 : fastest);
  return decide_determinism({.extra_ms = with - fastest,
                             .micro_batch_ms = length,
                             .extra_bytes = slab + (flash ? flash_bytes(exact) : 0),
                             .free_bytes = budget - without,
                             .products = products_ms > 0});
}

}  // namespace

Determinism decide_determinism(const DeterminismPrice& price) {
  const double part = price.extra_ms > 0 ? price.extra_ms / price.micro_batch_ms : price.extra_ms * 0;
  const double percent = 100 * part;
  if (!(part <= kDeterminismLimit)) {
    if (!(price.micro_batch_ms > 0))
      return {false, "auto: its price is not known without train.tune_kernels"};
    return {false, fmt::format("auto: it would cost up to {:.1f} % of {}, more than {:.0f} %", percent,
                               price.products ? "a step" : "attention, all that was timed",
                               100 * kDeterminismLimit)};
  }
  if (price.extra_bytes > price.free_bytes) {
    return {false, fmt::format("auto: its {} of scratch do not fit beside this plan",
                               format_bytes(price.extra_bytes))};
  }
  if (part <= 0) return {true, kFree};
  return {true, fmt::format("auto: it costs at most {:.1f} % of a step", percent)};
}

Determinism resolve_determinism(const Config& config, const ComputeDevice& device, double products_ms,
                                int64_t budget) {
  Determinism answer;
  if (const auto known = answer_in_force(config, device)) {
    answer.on = *known;
    if (config.train.deterministic == "auto")
      answer.why = has_price(config, device) ? "auto: as the checkpoint was" : kFree;
  } else {
    try {
      answer = timed(config, device, products_ms, budget);
    } catch (const std::invalid_argument& error) {
      answer = {false, fmt::format("auto: {}", error.what())};
    }
    if (!answer.on) answer.why += "; train.deterministic=true asks for it";
  }
  if (has_price(config, device)) {
    const std::string key = determinism_key(config);
    if (ops::choices().find(key) != nlohmann::json(answer.on)) ops::choices().store(key, answer.on);
  }
  set_numerics(answer.on);
  return answer;
}

bool known_determinism(const Config& config, const ComputeDevice& device) {
  return answer_in_force(config, device).value_or(false);
}

std::string determinism_key(const Config& config) {
  const ModelConfig& model = config.model;
  return fmt::format("deterministic L{} H{} F{} V{} Hq{} Hk{} D{} T{}{}", model.layers, model.hidden_size,
                     model.ffn_size, model.vocab_size, model.heads, model.kv_head_count(), model.head_size(),
                     config.data.context, config.data.document_mask ? " documents" : "");
}

}  // namespace narrowgauge::train
