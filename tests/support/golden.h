#pragma once
#include <filesystem>
#include <vector>

namespace narrowgauge::test {

// Every model folder in NARROWGAUGE_GOLDEN (default: ../shared/golden beside the repository), in the order of
// their names. A program that calls it is skipped when there is none.
std::vector<std::filesystem::path> golden_folders();

}  // namespace narrowgauge::test
