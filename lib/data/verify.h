#pragma once
#include <cstdint>
#include <string>

#include "lib/data/dataset.h"

namespace narrowgauge::data {

struct Verified {
  int64_t shards = 0;
  int64_t bytes = 0;  // of their tokens
};

// Reads the shards from the first one on, as long as their tokens have at most `most_bytes` in all, and
// compares their checksums (our own format has one) and every id (as Dataset::read). UserError names the
// first damaged one.
Verified verify_contents(const Dataset& dataset, int64_t most_bytes = INT64_MAX);

// For the start of training: opens `pattern`, checks its vocabulary, verifies its first 8 GiB and logs what
// was read and what was not. `key` names the pattern in the log. UserErrors as Dataset::open, set_vocab_limit
// and verify_contents.
void verify_before_training(const std::string& key, const std::string& pattern, int64_t vocab_size);

}  // namespace narrowgauge::data
