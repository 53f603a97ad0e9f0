#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/data/shard.h"

namespace narrowgauge::data {

// A concatenated stream of tokens over one or more shards, in the order of their sorted names. Thread-safe
// once set up.
class Dataset {
 public:
  // `pattern` is a shard file, a folder or a glob; of the last two every *.ngt, *.bin and *.npy file is a
  // shard (folders are not searched deeper). UserError names what is missing, empty, truncated or malformed,
  // and two shards that disagree about vocabulary, tokenizer or end-of-document token.
  static std::shared_ptr<Dataset> open(const std::string& pattern);

  [[nodiscard]] int64_t token_count() const { return starts_.back(); }
  // Copies `count` tokens from `offset` of the stream. Every id must lie in [0, vocab_limit): UserError with
  // the file, the position and the id.
  void read(int64_t offset, int64_t count, int32_t* out) const;
  // The model's vocabulary size; until then the limit is what the shards declare. UserError when the shards
  // declare a larger vocabulary. Call it before other threads read.
  void set_vocab_limit(int64_t vocab_size);

  [[nodiscard]] int64_t vocab_size() const {
    return first().vocab_size;
  }  // declared by the shards; 0: unknown
  [[nodiscard]] std::optional<uint64_t> tokenizer_hash() const { return first().tokenizer_hash; }
  [[nodiscard]] int32_t end_of_document() const { return first().end_of_document; }  // -1: unknown
  [[nodiscard]] std::filesystem::path folder() const;  // of the first shard, where a tokenizer may lie
  [[nodiscard]] uint64_t fingerprint() const;          // names, sizes and ShardInfo::checksum of all shards
  [[nodiscard]] const std::vector<std::shared_ptr<const Shard>>& shards() const { return shards_; }

 private:
  explicit Dataset(std::vector<std::shared_ptr<const Shard>> shards);
  [[nodiscard]] const ShardInfo& first() const { return shards_.front()->info(); }
  void check(const Shard& shard, int64_t offset, int64_t count, const int32_t* ids) const;

  std::vector<std::shared_ptr<const Shard>> shards_;
  std::vector<int64_t> starts_;  // of every shard in the stream, and the end
  int64_t vocab_limit_ = 0;      // 0: any id that is not negative
};

}  // namespace narrowgauge::data
