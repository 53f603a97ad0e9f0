#include "lib/config/memory_config.h"

#include <fmt/format.h>

#include <array>

#include "lib/base/text.h"
#include "lib/config/key_types.h"

namespace narrowgauge {
namespace {

using Levels = std::vector<RecomputeLevel>;

constexpr std::array kLevels{RecomputeLevel::none, RecomputeLevel::elementwise, RecomputeLevel::ffn,
                             RecomputeLevel::ffn_qkv, RecomputeLevel::block};
constexpr const char* kRecomputeRule =
    "auto, one of none, elementwise, ffn, ffn+qkv, block, or a list of them with one a layer";

// "" and the level at the end of `levels`, or what is wrong.
std::string read_level(const ConfigValue& value, Levels& levels) {
  std::vector<std::string> names;
  for (const RecomputeLevel level : kLevels) {
    names.emplace_back(recompute_name(level));
    if (value.kind != ConfigValue::Kind::list && value.text == names.back()) {
      levels.push_back(level);
      return "";
    }
  }
  return fmt::format("{} is no recompute level{} (allowed: {})", describe(value),
                     did_you_mean(value.text, names), kRecomputeRule);
}

std::string read_recompute(Config& config, const ConfigValue& value) {
  Levels levels;
  if (value.kind == ConfigValue::Kind::list) {
    if (value.items.empty()) return fmt::format("the list is empty (allowed: {})", kRecomputeRule);
    for (const ConfigValue& item : value.items) {
      if (std::string problem = read_level(item, levels); !problem.empty()) return problem;
    }
  } else if (value.text != "auto") {
    if (std::string problem = read_level(value, levels); !problem.empty()) return problem;
  }
  config.memory.recompute = std::move(levels);
  return "";
}

std::string write_recompute(const Config& config) {
  const Levels& levels = config.memory.recompute;
  if (levels.empty()) return "auto";
  if (levels.size() == 1) return recompute_name(levels[0]);
  std::vector<std::string> names;
  for (const RecomputeLevel level : levels) names.emplace_back(recompute_name(level));
  return "[" + join(names) + "]";
}

}  // namespace

const char* recompute_name(RecomputeLevel level) {
  switch (level) {
    case RecomputeLevel::none:
      return "none";
    case RecomputeLevel::elementwise:
      return "elementwise";
    case RecomputeLevel::ffn:
      return "ffn";
    case RecomputeLevel::ffn_qkv:
      return "ffn+qkv";
    case RecomputeLevel::block:
      return "block";
  }
  return "";
}

ConfigSection memory_section() {
  using M = MemoryConfig;
  SectionRows<M> rows("memory", "What is kept on the device.", &Config::memory);
  rows.choice(
      "plan", &M::plan, {"auto", "off"},
      "auto: what is auto below and train.micro_batch become the fastest that fits the budget, a "
      "rehearsal proves it before step 1, and a run that memory is taken from goes on with less. off: "
      "micro-batch 1 and block, and a run that does not fit ends.");
  ConfigKey recompute;
  recompute.type = "level, list or auto";
  recompute.rule = kRecomputeRule;
  recompute.read = read_recompute;
  recompute.write = write_recompute;
  rows.add("recompute", "",
           "What each layer computes again in backward instead of keeping it, from nothing to "
           "the whole block; auto: as little as fits.",
           std::move(recompute));
  rows.integer("loss_chunk", &M::loss_chunk, between(1, 1 << 20), "tokens",
               "Tokens whose logits exist at once.");
  rows.choice("grad_dtype", &M::grad_dtype, {"bf16", "fp32"},
              "Type of the accumulated gradients of matrices; embedding and norms always have fp32.");
  rows.bytes(
      "attention_workspace", &M::attention_workspace,
      "Scratch that a deterministic backward of attention may take; less means smaller groups of heads "
      "and slower.");
  rows.automatic_bytes("budget", &M::budget,
                       "Device memory of the whole process at most; auto: what is free, less the reserve.");
  rows.bytes("reserve", &M::reserve, "Left to the desktop and other programs when the budget is auto.");
  return rows.take();
}

}  // namespace narrowgauge
