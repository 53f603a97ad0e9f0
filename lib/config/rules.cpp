#include <fmt/format.h>

#include "lib/config/schema.h"

namespace narrowgauge {
namespace {

using Problems = std::vector<std::string>;

void check_heads(const Config& config, Problems& problems) {
  const ModelConfig& model = config.model;
  if (model.head_dim == 0 && model.hidden_size % model.heads != 0) {
    problems.push_back(
        fmt::format("model.heads ({}) must divide model.hidden_size ({}), or set model.head_dim", model.heads,
                    model.hidden_size));
    return;  // no head size to judge
  }
  if (model.heads % model.kv_head_count() != 0) {
    problems.push_back(
        fmt::format("model.kv_heads ({}) must divide model.heads ({})", model.kv_heads, model.heads));
  }
  const int64_t head_size = model.head_size();
  if (head_size % 2 != 0) {
    problems.push_back(fmt::format(
        "the head size ({}: model.head_dim, or hidden_size / heads) must be even for rotary positions",
        head_size));
  } else if (config.train.dtype == "bf16" && (head_size % 8 != 0 || head_size > 256)) {
    problems.push_back(
        fmt::format("the head size ({}: model.head_dim, or hidden_size / heads) must be a multiple of 8 and "
                    "at most 256 with "
                    "train.dtype bf16",
                    head_size));
  }
}

void check_widths(const Config& config, Problems& problems) {
  if (config.train.dtype != "bf16") return;
  for (const auto& [name, width] :
       {std::pair{"hidden_size", config.model.hidden_size}, std::pair{"ffn_size", config.model.ffn_size}}) {
    if (width % 8 != 0) {
      problems.push_back(
          fmt::format("model.{} ({}) must be a multiple of 8 with train.dtype bf16", name, width));
    }
  }
}

void check_batch(const Config& config, Problems& problems) {
  const int64_t tokens = config.train.tokens_per_step, context = config.data.context;
  if (tokens % context != 0) {
    problems.push_back(
        fmt::format("train.tokens_per_step ({}) must be a multiple of data.context ({})", tokens, context));
  } else if (config.train.micro_batch > 0 && tokens / context % config.train.micro_batch != 0) {
    problems.push_back(
        fmt::format("train.micro_batch ({}) must divide the {} sequences of a step (train.tokens_per_step / "
                    "data.context)",
                    config.train.micro_batch, tokens / context));
  }
}

void check_schedule(const Config& config, Problems& problems) {
  const OptimConfig& optim = config.optim;
  const int64_t total = optim.schedule_steps > 0 ? optim.schedule_steps : config.train.steps;
  const char* source = optim.schedule_steps > 0 ? "optim.schedule_steps" : "train.steps";
  if (optim.warmup_steps >= total) {
    problems.push_back(fmt::format("optim.warmup_steps ({}) must be below the schedule's length ({}: {})",
                                   optim.warmup_steps, total, source));
  }
}

void check_precision(const Config& config, Problems& problems) {
  if (config.optim.state == "fp32" && config.optim.embedding_state == "8bit") {
    problems.push_back("optim.embedding_state 8bit needs optim.state 8bit");
  }
  if (config.train.dtype != "fp32") return;
  if (config.optim.master != "stochastic") {
    problems.push_back(
        fmt::format("optim.master {} needs train.dtype bf16: fp32 weights are exact and need no master "
                    "(leave it at stochastic)",
                    config.optim.master));
  }
  if (config.train.attention == "flash" || config.train.attention == "cudnn") {
    problems.push_back(fmt::format("train.attention {} needs train.dtype bf16 (fp32 has auto and math)",
                                   config.train.attention));
  }
}

void check_memory(const Config& config, Problems& problems) {
  const auto levels = static_cast<int64_t>(config.memory.recompute.size());
  if (levels > 1 && levels != config.model.layers) {
    problems.push_back(
        fmt::format("memory.recompute lists {} levels, but model.layers is {}: name one level, or "
                    "one a layer",
                    levels, config.model.layers));
  }
}

void check_checkpoints(const Config& config, Problems& problems) {
  const int64_t save = config.train.save_every, keep = config.train.keep_every;
  if (keep > 0 && (save == 0 || keep % save != 0)) {
    problems.push_back(
        fmt::format("train.keep_every ({}) must be a multiple of train.save_every ({})", keep, save));
  }
}

void check_tokens(const Config& config, Problems& problems) {
  if (config.data.end_of_document >= config.model.vocab_size) {
    problems.push_back(fmt::format("data.end_of_document ({}) must be below model.vocab_size ({})",
                                   config.data.end_of_document, config.model.vocab_size));
  }
}

}  // namespace

std::vector<std::string> broken_rules(const Config& config) {
  Problems problems;
  check_heads(config, problems);
  check_widths(config, problems);
  check_batch(config, problems);
  check_schedule(config, problems);
  check_precision(config, problems);
  check_memory(config, problems);
  check_checkpoints(config, problems);
  check_tokens(config, problems);
  return problems;
}

}  // namespace narrowgauge
