#include "lib/train/corpus.h"

#include <fmt/format.h>

#include "lib/base/error.h"

namespace narrowgauge::train {
namespace {

bool holds_window(const data::SampleRange& range, int64_t context) {
  return range.end - range.begin >= context + 1;
}

}  // namespace

TokenRange open_tokens(const std::string& key, const std::string& pattern, const Config& config) {
  const std::shared_ptr<data::Dataset> dataset = data::Dataset::open(pattern);
  if (dataset->vocab_size() > config.model.vocab_size) {
    throw UserError(
        fmt::format("{} ({}) was tokenized with a vocabulary of {}, but model.vocab_size is {}; it must be "
                    "at least as large",
                    key, pattern, dataset->vocab_size(), config.model.vocab_size));
  }
  dataset->set_vocab_limit(config.model.vocab_size);
  const data::SampleRange range{0, dataset->token_count()};
  if (!holds_window(range, config.data.context)) {
    throw UserError(
        fmt::format("{} ({}) holds {} tokens, but one sample needs data.context + 1 = {}; lower "
                    "data.context or give more data",
                    key, pattern, range.end, config.data.context + 1));
  }
  return {dataset, range};
}

int32_t resolve_end_of_document(const Config& config, const data::Dataset& dataset) {
  const int32_t token = config.data.end_of_document >= 0 ? static_cast<int32_t>(config.data.end_of_document)
                                                         : dataset.end_of_document();
  if (token < 0 && config.data.document_mask) {
    throw UserError(
        "data.document_mask needs the end-of-document token, but the shards do not name one; set "
        "data.end_of_document");
  }
  return token;
}

Corpus open_corpus(const Config& config) {
  Corpus corpus;
  corpus.train = open_tokens("data.train", config.data.train, config);
  const data::Dataset& train = *corpus.train.dataset;
  if (!config.data.val.empty()) {
    corpus.val = open_tokens("data.val", config.data.val, config);
    const auto hash = corpus.val.dataset->tokenizer_hash();
    if (hash && train.tokenizer_hash() && hash != train.tokenizer_hash()) {
      throw UserError(
          fmt::format("data.val ({}) was made with another tokenizer than data.train ({}); prepare both with "
                      "the same one",
                      config.data.val, config.data.train));
    }
  } else if (config.data.val_fraction > 0) {
    const auto split =
        data::split_train_val(train.token_count(), config.data.context, config.data.val_fraction);
    corpus.train.range = split.train;
    corpus.val = {corpus.train.dataset, split.val};
  }
  corpus.tokenizer = data::load_tokenizer(train.folder());
  if (corpus.tokenizer && train.tokenizer_hash() && corpus.tokenizer->hash() != *train.tokenizer_hash()) {
    throw UserError(
        fmt::format("the tokenizer in {} is not the one that data.train ({}) was made with; put the right "
                    "file there or prepare the data again",
                    train.folder().string(), config.data.train));
  }
  corpus.end_of_document = resolve_end_of_document(config, train);
  return corpus;
}

}  // namespace narrowgauge::train
