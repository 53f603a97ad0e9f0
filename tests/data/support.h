#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/data/dataset.h"
#include "lib/data/shard_writer.h"

namespace narrowgauge::test {

// The message of the UserError that `body` throws, "" when it throws none.
inline std::string user_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// True when `text` is one line that holds all of `parts`.
inline bool says(const std::string& text, const std::vector<std::string>& parts) {
  bool all = !text.empty() && text.find('\n') == std::string::npos;
  for (const auto& part : parts) all = all && text.find(part) != std::string::npos;
  return all;
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string file_text(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// The bytes of numbers, one after another.
template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline void write_shards(const std::filesystem::path& folder, std::span<const int32_t> tokens,
                         data::ShardSetInfo set = {1000, 7, 2}, int64_t shard_tokens = 1 << 30) {
  std::filesystem::create_directories(folder);
  data::ShardWriter writer(folder, set, shard_tokens);
  writer.append(tokens);
  writer.finish();
}

inline std::vector<int32_t> all_tokens(const std::string& pattern) {
  const auto dataset = data::Dataset::open(pattern);
  std::vector<int32_t> tokens(static_cast<size_t>(dataset->token_count()));
  dataset->read(0, dataset->token_count(), tokens.data());
  return tokens;
}

// The real text, or "" with a note on the output when it is not there.
inline std::string real_text_path() {
  const char* folder = std::getenv("NARROWGAUGE_DATA");
  const auto path =
      std::filesystem::path(folder != nullptr ? folder : NARROWGAUGE_SOURCE_DIR "/../shared/data") /
      "tinyshakespeare.txt";
  return std::filesystem::exists(path) ? path.string() : "";
}

}  // namespace narrowgauge::test
