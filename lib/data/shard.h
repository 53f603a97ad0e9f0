#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "lib/data/file_bytes.h"

namespace narrowgauge::data {

enum class ShardFormat { narrowgauge, raw_uint16, llmc, npy };
enum class TokenType { uint16, uint32, int32, int64 };

struct ShardInfo {
  ShardFormat format = ShardFormat::narrowgauge;
  TokenType type = TokenType::uint16;
  int token_bytes = 2;                     // 2 or 4; 8 for int64 in .npy
  int64_t count = 0;                       // tokens
  int64_t vocab_size = 0;                  // 0: the format does not say
  int32_t end_of_document = -1;            // -1: the format does not say
  std::optional<uint64_t> tokenizer_hash;  // nothing: the format does not say
  int64_t payload_offset = 0;              // byte of the first token
  // XXH3-64: own format of the payload, as the header says; others of the file's size and 64 blocks of 64 KiB
  // that lie evenly from its start to its end (of all bytes when it has no more), so that a change elsewhere
  // goes unnoticed.
  uint64_t checksum = 0;
};

// One file of tokens, read through mmap on a local file system and through pread on 9p and network ones.
// Thread-safe.
class Shard {
 public:
  // Recognises the format by its header; a file without a known one is raw uint16 when it is called *.bin.
  // UserError: missing, unreadable, truncated, empty, malformed, of an unknown version.
  static std::shared_ptr<const Shard> open(const std::filesystem::path& path,
                                           FileAccess access = FileAccess::automatic);

  [[nodiscard]] const ShardInfo& info() const { return info_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  // Copies `count` tokens from `offset`. An id that int32 cannot hold comes out as -1.
  void read(int64_t offset, int64_t count, int32_t* out) const;
  // The id at `offset` as it is in the file, for messages.
  [[nodiscard]] int64_t id(int64_t offset) const;
  // Reads the whole payload and compares its checksum: UserError when it differs. False when the format has
  // none.
  bool verify() const;

 private:
  Shard(std::filesystem::path path, FileAccess access);
  std::filesystem::path path_;
  FileBytes bytes_;
  ShardInfo info_;
};

}  // namespace narrowgauge::data
