#pragma once
#include "lib/config/data_config.h"
#include "lib/model/transformer.h"
#include "lib/train/corpus.h"

namespace narrowgauge::train {

struct Evaluation {
  double loss = 0;  // mean cross-entropy over the counted targets, without z-loss
  int64_t tokens = 0;
  [[nodiscard]] double perplexity() const;
};

// Windows of `context` tokens that an evaluation computes at once. No other setting has a say, so the numbers
// depend on no micro-batch.
int64_t evaluation_windows(int64_t context);

// Mean loss over the first windows of `tokens`, at most `max_tokens` tokens and at least one window.
// Waits for the device at the end.
Evaluation evaluate(model::Transformer& model, const TokenRange& tokens, const DataConfig& data,
                    int32_t end_of_document, int64_t max_tokens);

}  // namespace narrowgauge::train
