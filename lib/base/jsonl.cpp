#include "lib/base/jsonl.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace narrowgauge {
namespace {

bool keeps(std::string_view line, std::optional<int64_t> last_step) {
  const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return false;
  if (!last_step) return true;
  const auto step = row.find("step");
  return step == row.end() || !step->is_number() || step->get<double>() <= static_cast<double>(*last_step);
}

// The lines that stay, each with its line break.
std::string kept_lines(std::string_view bytes, std::optional<int64_t> last_step) {
  std::string kept;
  kept.reserve(bytes.size());
  for (size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
    if (keeps(bytes.substr(0, end), last_step)) kept += bytes.substr(0, end + 1);
  }
  return kept;
}

template <typename Json>
void write_row(int fd, const std::filesystem::path& path, const Json& row) {
  const std::string line = row.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  write_all(fd, line.data(), line.size(), path);
}

}  // namespace

JsonLines::JsonLines(std::filesystem::path path, std::optional<int64_t> truncate_after_step)
    : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) {
    const std::string bytes = read_file(path_);
    const std::string kept = kept_lines(bytes, truncate_after_step);
    if (kept.size() != bytes.size()) atomic_write_file(path_, kept);
  }
  file_ = open_to_append(path_);
}

void JsonLines::write(const nlohmann::json& row) { write_row(file_.get(), path_, row); }
void JsonLines::write(const nlohmann::ordered_json& row) { write_row(file_.get(), path_, row); }

}  // namespace narrowgauge
