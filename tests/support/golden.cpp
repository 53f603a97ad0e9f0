#include "tests/support/golden.h"

#include <algorithm>
#include <cstdlib>

#include "tests/support/skip.h"

namespace narrowgauge::test {
namespace {

namespace fs = std::filesystem;

fs::path golden_root() {
  const char* given = std::getenv("NARROWGAUGE_GOLDEN");
  return given != nullptr ? fs::path(given) : fs::path(NARROWGAUGE_SOURCE_DIR) / "../shared/golden";
}

}  // namespace

std::vector<fs::path> golden_folders() {
  std::vector<fs::path> folders;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(golden_root(), missing)) {
    if (fs::exists(entry.path() / "config.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::string reason_to_skip() {
  if (!golden_folders().empty()) return {};
  return "no golden models in " + golden_root().lexically_normal().string() + "; set NARROWGAUGE_GOLDEN";
}

}  // namespace narrowgauge::test
