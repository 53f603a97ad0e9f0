#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <string>

#include "lib/base/error.h"
#include "lib/data/shard_format.h"

namespace narrowgauge::data {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw UserError(
      fmt::format("{}: {}; save it as a one-dimensional array of uint16, int32, uint32 or int64 "
                  "(numpy.save)",
                  path.string(), what));
}

// The text after 'key': in the header's dictionary, without leading blanks.
std::string_view value_of(std::string_view dictionary, std::string_view key,
                          const std::filesystem::path& path) {
  const std::string quoted = fmt::format("'{}':", key);
  const size_t at = dictionary.find(quoted);
  if (at == std::string_view::npos) refuse(path, fmt::format("malformed .npy header without {}", key));
  std::string_view value = dictionary.substr(at + quoted.size());
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

std::string_view between(std::string_view text, char open, char close, const std::filesystem::path& path) {
  const size_t end = text.find(close, 1);
  if (text.empty() || text.front() != open || end == std::string_view::npos)
    refuse(path, "malformed .npy header");
  return text.substr(1, end - 1);
}

TokenType parse_type(std::string_view name, const std::filesystem::path& path) {
  if (name == "<u2") return TokenType::uint16;
  if (name == "<u4") return TokenType::uint32;
  if (name == "<i4") return TokenType::int32;
  if (name == "<i8") return TokenType::int64;
  refuse(path, fmt::format("elements of type '{}'", name));
}

int64_t parse_count(std::string_view shape, const std::filesystem::path& path) {
  int64_t count = -1;
  const auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), count);
  const std::string_view rest(end, static_cast<size_t>(shape.data() + shape.size() - end));
  if (error != std::errc() || count < 0 || rest != ",") refuse(path, fmt::format("shape ({})", shape));
  return count;
}

}  // namespace

ShardInfo parse_npy_header(std::string_view head, const std::filesystem::path& path) {
  if (head.size() < 12) refuse(path, "truncated .npy header");
  const int major = static_cast<unsigned char>(head[6]);
  if (major != 1 && major != 2) refuse(path, fmt::format(".npy format {}, but 1 and 2 are known", major));
  const size_t prefix = major == 1 ? 10 : 12;
  uint32_t length = 0;
  std::memcpy(&length, head.data() + 8, prefix - 8);
  if (length > head.size() - prefix) {
    refuse(path,
           fmt::format(".npy header of {} bytes that ends outside the file's first {}", length, head.size()));
  }
  const std::string_view dictionary = head.substr(prefix, length);
  ShardInfo info;
  info.format = ShardFormat::npy;
  info.type = parse_type(between(value_of(dictionary, "descr", path), '\'', '\'', path), path);
  if (!value_of(dictionary, "fortran_order", path).starts_with("False"))
    refuse(path, "array in Fortran order");
  info.count = parse_count(between(value_of(dictionary, "shape", path), '(', ')', path), path);
  info.payload_offset = static_cast<int64_t>(prefix + length);
  return info;
}

}  // namespace narrowgauge::data
