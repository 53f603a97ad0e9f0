#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/data/shard.h"

namespace narrowgauge::data {

// A concatenated stream of tokens over one or more shards, in the order of their sorted names.
class Dataset {
 public:
  // `pattern` is a shard file, a folder (every shard in it) or a glob. UserError names what is missing,
  // empty, truncated or malformed.
  static std::shared_ptr<const Dataset> open(const std::string& pattern);

  [[nodiscard]] int64_t token_count() const;
  // Copies `count` tokens from `offset` of the stream. Checks every id against vocab_limit (see below):
  // UserError with the file, the position and the id.
  void read(int64_t offset, int64_t count, int32_t* out) const;
  void set_vocab_limit(int64_t vocab_size);  // of the model; from the training set-up

  [[nodiscard]] int64_t vocab_size() const;            // declared by the shards; 0: unknown
  [[nodiscard]] std::optional<uint64_t> tokenizer_hash() const;
  [[nodiscard]] int32_t end_of_document() const;       // -1: unknown
  [[nodiscard]] std::filesystem::path folder() const;  // where a tokenizer may lie
  [[nodiscard]] uint64_t fingerprint() const;          // names, sizes and header checksums of all shards

 private:
  std::vector<std::shared_ptr<const Shard>> shards_;
  std::vector<int64_t> starts_;
  int64_t vocab_limit_ = 0;
};

}  // namespace narrowgauge::data
