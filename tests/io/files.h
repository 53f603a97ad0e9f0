#pragma once
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "lib/base/error.h"

namespace narrowgauge::test {

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// The message of the UserError that `body` throws, "accepted" when it throws none.
inline std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

// "" when `text` is one line that holds all of `parts`, else the text and what it lacks.
inline std::string lacks(const std::string& text, const std::vector<std::string>& parts) {
  if (text.find('\n') != std::string::npos) return text + " is more than one line";
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) return text + " lacks: " + part;
  }
  return "";
}

}  // namespace narrowgauge::test
