#include "lib/data/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "lib/base/checksum.h"
#include "lib/base/error.h"
#include "lib/data/shard_format.h"

namespace narrowgauge::data {
namespace {

template <typename T>
T load(const std::byte* payload, int64_t index) {
  T value;
  std::memcpy(&value, payload + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void convert(const std::byte* payload, int64_t count, int32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const T value = load<T>(payload, i);
    if constexpr (sizeof(T) == 8) {
      out[i] = value < 0 || value > std::numeric_limits<int32_t>::max() ? -1 : static_cast<int32_t>(value);
    } else {
      out[i] = std::max(static_cast<int32_t>(value), -1);  // uint32 from 2^31 on becomes negative first
    }
  }
}

}  // namespace

std::shared_ptr<const Shard> Shard::open(const std::filesystem::path& path, FileAccess access) {
  return std::shared_ptr<const Shard>(new Shard(path, access));
}

Shard::Shard(std::filesystem::path path, FileAccess access)
    : path_(std::move(path)), bytes_(path_, access), info_(read_shard_info(bytes_, path_)) {}

void Shard::read(int64_t offset, int64_t count, int32_t* out) const {
  if (offset < 0 || count < 0 || count > info_.count - offset) {
    throw std::out_of_range(
        fmt::format("{}: tokens [{}, {}) of {}", path_.string(), offset, offset + count, info_.count));
  }
  std::vector<std::byte> scratch;
  const std::byte* payload =
      bytes_.view(info_.payload_offset + offset * info_.token_bytes, count * info_.token_bytes, scratch);
  switch (info_.type) {
    case TokenType::uint16:
      return convert<uint16_t>(payload, count, out);
    case TokenType::uint32:
      return convert<uint32_t>(payload, count, out);
    case TokenType::int32:
      return convert<int32_t>(payload, count, out);
    case TokenType::int64:
      return convert<int64_t>(payload, count, out);
  }
}

int64_t Shard::id(int64_t offset) const {
  std::vector<std::byte> scratch;
  const std::byte* payload =
      bytes_.view(info_.payload_offset + offset * info_.token_bytes, info_.token_bytes, scratch);
  switch (info_.type) {
    case TokenType::uint16:
      return load<uint16_t>(payload, 0);
    case TokenType::uint32:
      return load<uint32_t>(payload, 0);
    case TokenType::int32:
      return load<int32_t>(payload, 0);
    case TokenType::int64:
      return load<int64_t>(payload, 0);
  }
  throw std::logic_error("token type");
}

bool Shard::verify() const {
  if (info_.format != ShardFormat::narrowgauge) return false;
  constexpr int64_t kBlock = 1 << 20;
  Checksum sum;
  std::vector<std::byte> scratch;
  for (int64_t at = info_.payload_offset; at < bytes_.size(); at += kBlock) {
    const int64_t bytes = std::min(kBlock, bytes_.size() - at);
    sum.update(bytes_.view(at, bytes, scratch), static_cast<size_t>(bytes));
  }
  if (sum.value() != info_.checksum) {
    throw UserError(
        fmt::format("{}: corrupted shard: its tokens have checksum {}, but the header says {}; prepare "
                    "or copy it again",
                    path_.string(), checksum_hex(sum.value()), checksum_hex(info_.checksum)));
  }
  return true;
}

}  // namespace narrowgauge::data
