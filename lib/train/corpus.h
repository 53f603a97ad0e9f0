#pragma once
#include <memory>

#include "lib/config/config.h"
#include "lib/data/dataset.h"
#include "lib/data/sampler.h"
#include "lib/data/tokenizer.h"

namespace narrowgauge::train {

// A part of a token stream.
struct TokenRange {
  std::shared_ptr<const data::Dataset> dataset;  // null: none
  data::SampleRange range;
};

// What a run reads.
struct Corpus {
  TokenRange train;
  TokenRange val;                                    // data.val, or the end of data.train; may be none
  std::shared_ptr<const data::Tokenizer> tokenizer;  // the one beside the training data; null: none
  int32_t end_of_document = -1;
};

// Opens data.train and data.val and checks them against the model: enough tokens for one sample, ids below
// model.vocab_size, one tokenizer. Throws UserError.
Corpus open_corpus(const Config& config);

// Opens another stream (evaluation of `pattern`) with the same checks.
TokenRange open_tokens(const std::string& key, const std::string& pattern, const Config& config);

// data.end_of_document, or what the shards say; UserError when document masking needs one and there is none.
int32_t resolve_end_of_document(const Config& config, const data::Dataset& dataset);

}  // namespace narrowgauge::train
