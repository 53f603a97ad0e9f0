#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace narrowgauge::bench {

// What a kernel is asked to reach, cold: a fraction of the fastest device-to-device copy of the same run, or
// a time on an H200 that runs the 977M model.
struct Target {
  std::string_view kernel;
  double fraction = 0;      // of the copy; 0: none
  double milliseconds = 0;  // at most; 0: none
};

// What the chunked loss may take, as a multiple of its three products alone.
inline constexpr double kMostOfLossProducts = 1.15;

std::optional<Target> find_target(std::string_view kernel);

// "met", "missed" or, without a target, "".
std::string verdict(const std::optional<Target>& target, double fraction_of_copy, double milliseconds);
std::string target_text(const std::optional<Target>& target);  // ">= 87 %", "<= 2.9 ms" or ""

}  // namespace narrowgauge::bench
