#include "lib/bench/targets.h"

#include <fmt/format.h>

namespace narrowgauge::bench {
namespace {

constexpr Target kTargets[] = {
    {"rms_norm", 0.87},          {"add_rms_norm", 0.87},
    {"rms_norm_backward", 0.82}, {"rope", 0.87},
    {"rope_backward", 0.87},     {"swiglu", 0.89},
    {"swiglu_backward", 0.89},   {"cross_entropy", 0.82},
    {"gradient_norm", 0.87},     {"adamw_stochastic", 0, 2.9},
    {"adamw_split", 0, 4.0},
};

}  // namespace

std::optional<Target> find_target(std::string_view kernel) {
  for (const Target& target : kTargets) {
    if (target.kernel == kernel) return target;
  }
  return std::nullopt;
}

std::string verdict(const std::optional<Target>& target, double fraction_of_copy, double milliseconds) {
  if (!target) return "";
  const bool fast = target->fraction == 0 || fraction_of_copy >= target->fraction;
  const bool short_enough = target->milliseconds == 0 || milliseconds <= target->milliseconds;
  return fast && short_enough ? "met" : "missed";
}

std::string target_text(const std::optional<Target>& target) {
  if (!target) return "";
  if (target->fraction > 0) return fmt::format(">= {:.0f} %", 100 * target->fraction);
  return fmt::format("<= {:.1f} ms", target->milliseconds);
}

}  // namespace narrowgauge::bench
