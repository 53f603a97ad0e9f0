#include "lib/data/tokenizer.h"

#include "lib/data/byte_tokenizer.h"
#include "lib/data/sentencepiece.h"
#include "lib/data/utf8.h"

namespace narrowgauge::data {

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "byte") return std::make_unique<ByteTokenizer>();
  return load_sentencepiece(name);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder / kSentencePieceFileName, ignored)) {
    return load_sentencepiece(folder / kSentencePieceFileName);
  }
  if (std::filesystem::exists(folder / ByteTokenizer::kFileName, ignored))
    return std::make_unique<ByteTokenizer>();
  return nullptr;
}

std::string StreamDecoder::push(int32_t id) {
  tokenizer_.append_bytes(id, pending_);
  const size_t whole = whole_characters(pending_);
  std::string out = replace_invalid_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = replace_invalid_utf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace narrowgauge::data
