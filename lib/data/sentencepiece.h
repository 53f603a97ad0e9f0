#pragma once
#include <filesystem>
#include <memory>

#include "lib/data/tokenizer.h"

namespace narrowgauge::data {

inline constexpr const char* kSentencePieceFileName = "tokenizer.model";

// UserError: missing, malformed, without an end-of-sentence token.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model);

}  // namespace narrowgauge::data
