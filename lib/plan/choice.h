#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/config/config.h"

namespace narrowgauge::plan {

inline constexpr std::array kLevels{RecomputeLevel::none, RecomputeLevel::elementwise, RecomputeLevel::ffn,
                                    RecomputeLevel::ffn_qkv, RecomputeLevel::block};
inline constexpr size_t kLevelCount = kLevels.size();

// Layers at each level, by RecomputeLevel.
using LevelCounts = std::array<int64_t, kLevelCount>;

// What a plan decides.
struct Choice {
  int64_t micro_batch = 1;
  std::vector<RecomputeLevel> levels;  // one a layer
  int64_t loss_chunk = 4096;
  bool operator==(const Choice&) const = default;
};

// Layers that keep more come later in depth: what they keep lives shorter.
std::vector<RecomputeLevel> sorted_levels(const LevelCounts& counts);
LevelCounts count_levels(const std::vector<RecomputeLevel>& levels);

// "4 x ffn, 20 x elementwise", from the first layer to the last.
std::string levels_text(const std::vector<RecomputeLevel>& levels);

// The config with the choice in the place of every auto. One level for all layers is written as one.
Config with_choice(Config config, const Choice& choice);

// The choice that a config without auto has made.
Choice choice_of(const Config& config);

// What the config fixes: the level of every layer; empty for auto.
std::vector<RecomputeLevel> fixed_levels(const Config& config);

// train.deterministic auto counts as true: that is taken where it costs at most 3 % of a step.
bool assumes_determinism(const Config& config);

// Sequences of an optimizer step.
int64_t sequences(const Config& config);

}  // namespace narrowgauge::plan
