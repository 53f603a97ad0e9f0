#include "lib/data/shard_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "lib/base/checksum.h"
#include "lib/base/error.h"

namespace narrowgauge::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

// llm.c's header: 256 int32 values, of which [0] is the magic, [1] the version and [2] the token count.
constexpr int32_t kLlmcMagic16 = 20240520;
constexpr int32_t kLlmcMagic32 = 20240801;
constexpr int64_t kLlmcHeaderBytes = 1024;
constexpr int64_t kHeadBytes = int64_t{64} * 1024;  // no header is longer
constexpr int64_t kSampleBytes = int64_t{64} * 1024;
constexpr int64_t kSamples = 64;

template <typename T>
T load(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

[[noreturn]] void malformed(const std::filesystem::path& path, const std::string& what) {
  throw UserError(fmt::format("{}: {}; prepare or copy the file again", path.string(), what));
}

ShardInfo parse_own(std::string_view head, const std::filesystem::path& path) {
  if (head.size() < sizeof(ShardHeader)) {
    malformed(path, fmt::format("truncated shard: {} bytes, but the header alone has {}", head.size(),
                                sizeof(ShardHeader)));
  }
  const auto header = load<ShardHeader>(head, 0);
  if (header.version != kShardVersion) {
    throw UserError(
        fmt::format("{}: shard version {}, but this program reads version {}; prepare the data again "
                    "with this program",
                    path.string(), header.version, kShardVersion));
  }
  if (header.header_checksum != checksum(&header, offsetof(ShardHeader, header_checksum))) {
    malformed(path, "corrupted shard header (its checksum differs)");
  }
  if ((header.token_bytes != 2 && header.token_bytes != 4) || header.count < 0 || header.vocab_size < 0 ||
      header.end_of_document < -1 || header.end_of_document > INT32_MAX) {
    malformed(path, "shard header with impossible values");
  }
  ShardInfo info;
  info.format = ShardFormat::narrowgauge;
  info.type = header.token_bytes == 2 ? TokenType::uint16 : TokenType::uint32;
  info.count = header.count;
  info.vocab_size = header.vocab_size;
  info.end_of_document = static_cast<int32_t>(header.end_of_document);
  info.tokenizer_hash = header.tokenizer_hash;
  info.payload_offset = sizeof(ShardHeader);
  info.checksum = header.payload_checksum;
  return info;
}

ShardInfo parse_llmc(std::string_view head, const std::filesystem::path& path) {
  if (head.size() < static_cast<size_t>(kLlmcHeaderBytes)) {
    malformed(path, fmt::format("truncated shard: {} bytes, but llm.c's header alone has {}", head.size(),
                                kLlmcHeaderBytes));
  }
  const bool wide = load<int32_t>(head, 0) == kLlmcMagic32;
  const auto version = load<int32_t>(head, 4);
  const int32_t expected = wide ? 7 : 1;
  if (version != expected) {
    throw UserError(
        fmt::format("{}: llm.c token file {} of version {}, but only version {} is known; write it again "
                    "with a matching llm.c or use narrowgauge prepare",
                    path.string(), wide ? kLlmcMagic32 : kLlmcMagic16, version, expected));
  }
  ShardInfo info;
  info.format = ShardFormat::llmc;
  info.type = wide ? TokenType::uint32 : TokenType::uint16;
  info.count = load<int32_t>(head, 8);
  info.payload_offset = kLlmcHeaderBytes;
  if (info.count < 0) malformed(path, fmt::format("llm.c header with a token count of {}", info.count));
  return info;
}

ShardInfo parse_raw(std::string_view head, int64_t size, const std::filesystem::path& path) {
  // Other files of llm.c begin with a date, too: evaluation sets, models and states.
  const int32_t first = head.size() >= 4 ? load<int32_t>(head, 0) : 0;
  if (first == 20240522 || first == 20240326 || first == 20240327 || first == 20240527) {
    throw UserError(
        fmt::format("{}: a file of llm.c with magic {}, which holds no token stream; give a token file "
                    "(magic {} or {})",
                    path.string(), first, kLlmcMagic16, kLlmcMagic32));
  }
  if (path.extension() != ".bin") {
    throw UserError(
        fmt::format("{}: not a token file (.ngt, llm.c or raw uint16 .bin, .npy); turn text into tokens "
                    "with narrowgauge prepare",
                    path.string()));
  }
  if (size % 2 != 0) {
    malformed(path,
              fmt::format("truncated shard: {} bytes, but raw uint16 tokens need an even number", size));
  }
  ShardInfo info;
  info.format = ShardFormat::raw_uint16;
  info.type = TokenType::uint16;
  info.count = size / 2;
  return info;
}

// ShardInfo::checksum of a format without one: 4 MiB are read, however large the file is.
uint64_t sampled_checksum(const FileBytes& file) {
  const int64_t size = file.size();
  const bool whole = size <= kSamples * kSampleBytes;
  const int64_t samples = whole ? (size + kSampleBytes - 1) / kSampleBytes : kSamples;
  Checksum sum;
  sum.update(&size, sizeof(size));
  std::vector<std::byte> scratch;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t gap = (size - kSampleBytes) / (kSamples - 1),
                  left_over = (size - kSampleBytes) % (kSamples - 1);
    const int64_t at = whole ? i * kSampleBytes : i * gap + i * left_over / (kSamples - 1);
    const int64_t bytes = std::min(kSampleBytes, size - at);
    sum.update(file.view(at, bytes, scratch), static_cast<size_t>(bytes));
  }
  return sum.value();
}

}  // namespace

int token_bytes(TokenType type) {
  if (type == TokenType::uint16) return 2;
  return type == TokenType::int64 ? 8 : 4;
}

bool is_shard_name(const std::filesystem::path& path) {
  const auto extension = path.extension();
  return extension == kShardExtension || extension == ".bin" || extension == ".npy";
}

ShardInfo read_shard_info(const FileBytes& file, const std::filesystem::path& path) {
  if (file.size() == 0) {
    throw UserError(fmt::format("{}: empty file, but a token file needs at least one token; prepare it again",
                                path.string()));
  }
  std::vector<std::byte> scratch;
  const int64_t head_bytes = std::min(file.size(), kHeadBytes);
  const std::string_view head(reinterpret_cast<const char*>(file.view(0, head_bytes, scratch)),
                              static_cast<size_t>(head_bytes));
  const int32_t first = head.size() >= 4 ? load<int32_t>(head, 0) : 0;

  ShardInfo info;
  if (head.starts_with(std::string_view(kShardMagic.data(), kShardMagic.size()))) {
    info = parse_own(head, path);
  } else if (path.extension() == kShardExtension) {
    malformed(path, "no shard of narrowgauge (its first 8 bytes are not NGTOKENS)");
  } else if (head.starts_with("\x93NUMPY")) {
    info = parse_npy_header(head, path);
  } else if (first == kLlmcMagic16 || first == kLlmcMagic32) {
    info = parse_llmc(head, path);
  } else {
    info = parse_raw(head, file.size(), path);
  }
  info.token_bytes = token_bytes(info.type);
  if (info.count == 0) {
    throw UserError(
        fmt::format("{}: holds 0 tokens, but needs at least one; prepare it again", path.string()));
  }
  const int64_t payload = file.size() - info.payload_offset;
  if (payload % info.token_bytes != 0 || payload / info.token_bytes != info.count) {
    malformed(path, fmt::format("{} shard: the header promises {} tokens of {} bytes, but {} bytes follow it",
                                payload / info.token_bytes < info.count ? "truncated" : "malformed",
                                info.count, info.token_bytes, payload));
  }
  if (info.format != ShardFormat::narrowgauge) info.checksum = sampled_checksum(file);
  return info;
}

}  // namespace narrowgauge::data
