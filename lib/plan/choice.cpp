#include "lib/plan/choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/text.h"

namespace narrowgauge::plan {

std::vector<RecomputeLevel> sorted_levels(const LevelCounts& counts) {
  std::vector<RecomputeLevel> levels;
  for (size_t i = kLevelCount; i-- > 0;)
    levels.insert(levels.end(), static_cast<size_t>(counts[i]), kLevels[i]);
  return levels;
}

LevelCounts count_levels(const std::vector<RecomputeLevel>& levels) {
  LevelCounts counts{};
  for (const RecomputeLevel level : levels) ++counts[static_cast<size_t>(level)];
  return counts;
}

std::string levels_text(const std::vector<RecomputeLevel>& levels) {
  std::vector<std::string> runs;
  for (auto begin = levels.begin(); begin != levels.end();) {
    const auto end = std::find_if(begin, levels.end(), [&](RecomputeLevel level) { return level != *begin; });
    runs.push_back(fmt::format("{} x {}", end - begin, recompute_name(*begin)));
    begin = end;
  }
  return join(runs);
}

Config with_choice(Config config, const Choice& choice) {
  config.train.micro_batch = choice.micro_batch;
  config.memory.recompute = choice.levels;
  const auto other = [&](RecomputeLevel level) { return level != choice.levels.front(); };
  if (std::none_of(choice.levels.begin(), choice.levels.end(), other)) config.memory.recompute.resize(1);
  config.memory.loss_chunk = choice.loss_chunk;
  return config;
}

Choice choice_of(const Config& config) {
  return {.micro_batch = config.train.micro_batch,
          .levels = fixed_levels(config),
          .loss_chunk = config.memory.loss_chunk};
}

std::vector<RecomputeLevel> fixed_levels(const Config& config) {
  std::vector<RecomputeLevel> levels = config.memory.recompute;
  if (levels.size() == 1) levels.resize(static_cast<size_t>(config.model.layers), levels[0]);
  return levels;
}

bool assumes_determinism(const Config& config) { return config.train.deterministic != "false"; }

int64_t sequences(const Config& config) { return config.train.tokens_per_step / config.data.context; }

}  // namespace narrowgauge::plan
