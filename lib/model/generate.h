#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "lib/model/transformer.h"

namespace narrowgauge::model {

struct SampleOptions {
  int64_t max_tokens = 200;
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // 0: off
  double top_p = 1.0;        // 1: off
  uint64_t seed = 0;
  int32_t stop_token = -1;       // -1: none
  int32_t end_of_document = -1;  // -1: none
};

// Continues `prompt` (at least one token) with a key-value cache. Deterministic for a seed. Calls `on_token`
// as each token is drawn. Once max_context tokens are reached the oldest half is dropped and the cache
// rebuilt. A model with a document mask sees what it saw in training: what follows an end-of-document token,
// in the prompt too, is drawn from the document that it ends, and is then itself the beginning of a new one,
// at position 0.
std::vector<int32_t> generate(Transformer& model, const std::vector<int32_t>& prompt,
                              const SampleOptions& options,
                              const std::function<void(int32_t)>& on_token = {});

}  // namespace narrowgauge::model
