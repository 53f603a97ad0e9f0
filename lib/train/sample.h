#pragma once
#include <string>

#include "lib/config/train_config.h"
#include "lib/model/transformer.h"
#include "lib/train/corpus.h"

namespace narrowgauge::train {

struct SampleText {
  std::string prompt;
  std::string text;  // the continuation; token ids when the run has no tokenizer
};

// Continues train.sample_prompt by train.sample_tokens tokens, drawn with train.seed at temperature 0.8 and
// top-p 0.95.
SampleText sample_text(model::Transformer& model, const Corpus& corpus, const TrainConfig& config);

}  // namespace narrowgauge::train
