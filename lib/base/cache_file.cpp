#include "lib/base/cache_file.h"

#include <fmt/format.h>

#include <cstdlib>

#include "lib/base/file.h"
#include "lib/base/log.h"

namespace narrowgauge {
namespace {

namespace fs = std::filesystem;

fs::path absolute(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && fs::path(value).is_absolute() ? fs::path(value) : fs::path();
}

}  // namespace

fs::path cache_file(const std::string& name) {
  fs::path cache = absolute("XDG_CACHE_HOME");
  if (const fs::path home = absolute("HOME"); cache.empty() && !home.empty()) cache = home / ".cache";
  return cache.empty() ? cache : cache / "narrowgauge" / name;
}

std::string read_cache_file(const fs::path& path) {
  try {
    return path.empty() || !fs::exists(path) ? "" : read_file(path);
  } catch (const std::exception& error) {
    log_warn(fmt::format("the cache {} is not used: {}", path.string(), error.what()));
    return "";
  }
}

void write_cache_file(const fs::path& path, const std::string& text) {
  if (path.empty()) return;
  try {
    make_folder(path.parent_path());
    atomic_write_file(path, text);
  } catch (const std::exception& error) {
    log_warn(fmt::format("nothing is cached in {}: {}", path.string(), error.what()));
  }
}

}  // namespace narrowgauge
