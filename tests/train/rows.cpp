#include "tests/train/rows.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace fs = std::filesystem;

void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string real_text() {
  if (const char* data = std::getenv("NARROWGAUGE_DATA"))
    return read_text(fs::path(data) / "tinyshakespeare.txt");
  std::vector<fs::path> files;
  for (const char* folder : {"lib", "cuda", "app"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(NARROWGAUGE_SOURCE_DIR) / folder)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) text += read_text(file);
  return text;
}

std::vector<nlohmann::json> rows(const fs::path& run, const std::string& event) {
  std::vector<nlohmann::json> found;
  std::istringstream lines(read_text(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    if (event.empty() || row.at("event") == event) found.push_back(row);
  }
  return found;
}

void require_same_losses(const fs::path& a, const fs::path& b) {
  const auto left = rows(a, "step");
  const auto right = rows(b, "step");
  REQUIRE(left.size() == right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    for (const char* key : {"step", "loss", "grad_norm", "lse_mean", "lr", "tokens"}) {
      INFO("row " << i << ", " << key);
      REQUIRE(left[i].at(key) == right[i].at(key));
    }
  }
}

}  // namespace narrowgauge::test
