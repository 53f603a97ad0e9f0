#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "lib/base/file.h"

namespace narrowgauge {

// Append-only metrics: one JSON object a line, each handed to the system in one write before `write` returns,
// so a crash loses no finished line. NaN and infinities are written as null, invalid UTF-8 as U+FFFD.
class JsonLines {
 public:
  // Opens or creates. A last line without its line break and lines that are no JSON object are dropped; with
  // `truncate_after_step` so are objects whose "step" is larger. Dropping rewrites the file atomically.
  // Throws UserError when the file cannot be read or written.
  explicit JsonLines(std::filesystem::path path, std::optional<int64_t> truncate_after_step = std::nullopt);

  // Thread-safe against other processes' appends, not against other threads on the same object.
  void write(const nlohmann::json& row);
  void write(const nlohmann::ordered_json& row);  // the same; keys keep their order

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace narrowgauge
