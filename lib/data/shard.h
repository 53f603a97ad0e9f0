#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

namespace narrowgauge::data {

enum class ShardFormat { narrowgauge, raw_uint16, llmc, npy };

struct ShardInfo {
  ShardFormat format = ShardFormat::narrowgauge;
  int token_bytes = 2;                       // 2 or 4
  int64_t count = 0;                         // tokens
  int64_t vocab_size = 0;                    // 0: the format does not say
  int32_t end_of_document = -1;              // -1: the format does not say
  std::optional<uint64_t> tokenizer_hash;
  uint64_t checksum = 0;                     // own format: XXH3-64 of the payload
};

// One file of tokens, read through mmap on a local file system and through pread on 9p and network ones.
class Shard {
 public:
  // Recognises the format by its header. UserError: missing, unreadable, truncated, empty, malformed.
  static std::shared_ptr<const Shard> open(const std::filesystem::path& path);
  virtual ~Shard() = default;

  [[nodiscard]] virtual const ShardInfo& info() const = 0;
  [[nodiscard]] virtual const std::filesystem::path& path() const = 0;
  virtual void read(int64_t offset, int64_t count, int32_t* out) const = 0;
};

}  // namespace narrowgauge::data
