#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace narrowgauge::data {

struct PrepareCounts {
  int64_t bytes = 0;  // read
  int64_t documents = 0;
  int64_t tokens = 0;  // with the end-of-document tokens
  int64_t shards = 0;
};

struct PrepareOptions {
  std::vector<std::string> inputs;  // as TextReaderOptions
  bool jsonl = false;
  std::string field = "text";
  std::string tokenizer = "byte";  // as make_tokenizer
  std::filesystem::path out;
  int64_t shard_tokens = 100'000'000;
  bool overwrite = false;
  std::function<bool()> stop;                             // as TextReaderOptions
  std::function<void(const PrepareCounts&)> on_progress;  // every few MiB of text
};

// Text to a folder of token shards with the tokenizer beside them; an end-of-document token after every
// document. The folder appears whole or not at all (StagedFolder). A folder that is not empty is refused;
// with `overwrite` it is exchanged at the end, if it holds nothing but what prepare writes. Memory is
// constant, all cores encode. UserError: no text, unreadable or malformed input, full disk, OUT in the way,
// stopped; then nothing is left behind.
PrepareCounts prepare(const PrepareOptions& options);

// Compares the checksum of every shard of `pattern` (as Dataset::open) and checks every id; returns the token
// count. UserError names the first damaged shard.
int64_t verify_shards(const std::string& pattern);

}  // namespace narrowgauge::data
