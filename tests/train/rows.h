#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// What a training run leaves behind, and text to train on.
namespace narrowgauge::test {

void write_text(const std::filesystem::path& path, const std::string& text);
std::string read_text(const std::filesystem::path& path);  // "" when missing

// Text that people wrote: NARROWGAUGE_DATA/tinyshakespeare.txt where that is set, else this repository's
// sources.
std::string real_text();

// The rows of RUN/metrics.jsonl with this event ("": all). Every line must be valid JSON.
std::vector<nlohmann::json> rows(const std::filesystem::path& run, const std::string& event);

// Steps, losses and norms of two runs are equal to the last bit.
void require_same_losses(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace narrowgauge::test
