#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace narrowgauge::data {

// Text to token ids and back. Thread-safe for const use.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  [[nodiscard]] virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  [[nodiscard]] virtual int64_t vocab_size() const = 0;
  [[nodiscard]] virtual int32_t end_of_document() const = 0;
  // XXH3-64 of the tokenizer's file (of its name for "byte"), the identity stored in shards and checkpoints.
  [[nodiscard]] virtual uint64_t hash() const = 0;
  // Writes the file(s) that load_tokenizer(folder) reads back: tokenizer.json-free, "tokenizer.model" for
  // SentencePiece, "tokenizer.byte" for bytes.
  virtual void save(const std::filesystem::path& folder) const = 0;
};

// "byte" or the path of a SentencePiece .model file. UserError when missing or malformed.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

// The tokenizer saved in `folder`, or null when there is none.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder);

// Trains a SentencePiece BPE model (byte fallback, identity normalisation) on a text file.
void train_sentencepiece(const std::filesystem::path& input, int64_t vocab_size,
                         const std::filesystem::path& out);

}  // namespace narrowgauge::data
