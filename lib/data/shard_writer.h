#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "lib/base/checksum.h"
#include "lib/base/file.h"

namespace narrowgauge::data {

// What all shards of one set have in common.
struct ShardSetInfo {
  int64_t vocab_size = 0;  // ids that fit in 16 bits are stored as uint16, others as uint32
  uint64_t tokenizer_hash = 0;
  int32_t end_of_document = -1;
};

// Writes a stream of tokens into a folder as shards of our own format, "shard-000000.ngt" and so on, each of
// shard_tokens tokens except the last. Constant memory. A shard is valid only from its roll-over or from
// finish() on. Errors (full disk) are UserErrors.
class ShardWriter {
 public:
  ShardWriter(std::filesystem::path folder, ShardSetInfo set, int64_t shard_tokens);

  // Every id must lie in [0, vocab_size).
  void append(std::span<const int32_t> tokens);
  // Completes the last shard and flushes it to the device. Nothing may be appended afterwards.
  void finish();

  [[nodiscard]] int64_t token_count() const { return total_; }
  [[nodiscard]] int64_t shard_count() const { return shards_; }

 private:
  void open_shard();
  void close_shard();
  void flush();

  std::filesystem::path folder_;
  ShardSetInfo set_;
  int64_t shard_tokens_;
  int token_bytes_;
  int64_t total_ = 0;
  int64_t shards_ = 0;
  int64_t in_shard_ = 0;  // tokens
  std::filesystem::path path_;
  FileDescriptor file_;
  Checksum sum_;
  std::vector<char> buffer_;
};

}  // namespace narrowgauge::data
