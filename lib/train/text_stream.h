#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/data/tokenizer.h"

namespace narrowgauge::train {

// Drawn token ids as text, piece by piece and in whole characters; without a tokenizer the ids themselves,
// each with a space after it.
class TextStream {
 public:
  explicit TextStream(const data::Tokenizer* tokenizer) {  // may be null; must outlive this
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
  }
  std::string push(int32_t id) { return decoder_ ? decoder_->push(id) : std::to_string(id) + " "; }
  std::string finish() { return decoder_ ? decoder_->finish() : ""; }

 private:
  std::optional<data::StreamDecoder> decoder_;
};

// The ids of a prompt. Without a tokenizer it must be numbers below vocab_size, separated by spaces or commas
// (UserError). An empty prompt becomes the end-of-document token, or id 0 when there is none.
std::vector<int32_t> prompt_tokens(const std::string& prompt, const data::Tokenizer* tokenizer,
                                   int64_t vocab_size, int32_t end_of_document);

}  // namespace narrowgauge::train
