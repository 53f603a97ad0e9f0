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
  // Any ids: special tokens give nothing, ids outside the vocabulary U+FFFD. The bytes may be invalid UTF-8
  // when the ids were not made by encode.
  [[nodiscard]] virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  [[nodiscard]] virtual int64_t vocab_size() const = 0;
  [[nodiscard]] virtual int32_t end_of_document() const = 0;
  // XXH3-64 of the tokenizer's file (of its name for "byte"), the identity stored in shards and checkpoints.
  [[nodiscard]] virtual uint64_t hash() const = 0;
  // Writes the file that load_tokenizer(folder) reads back: "tokenizer.model" for SentencePiece,
  // "tokenizer.byte" for bytes.
  virtual void save(const std::filesystem::path& folder) const = 0;

  // Encoding a long text in pieces: the last position p in (0, size) with
  // encode(text) == encode(text before p) + encode_continuation(text from p), or 0 when there is none.
  [[nodiscard]] virtual size_t cut(std::string_view text) const = 0;
  // Text that continues a text encoded before: as encode, but without what encode adds at the beginning.
  [[nodiscard]] virtual std::vector<int32_t> encode_continuation(std::string_view text) const = 0;
  // The bytes of one token in the middle of a text; with the rules of decode.
  virtual void append_bytes(int32_t id, std::string& out) const = 0;
};

// "byte" or the path of a SentencePiece .model file. UserError when missing or malformed.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

// The tokenizer saved in `folder`, or null when there is none. UserError when it is malformed.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder);

// Trains a SentencePiece BPE model on a text file and writes it to `out`, whole or not at all. Byte fallback,
// no normalisation, no added or removed blanks, single digits; newlines and runs of blanks may be part of
// tokens. Returns the size of the vocabulary, which is smaller than asked for when the text yields no more.
// Training needs memory of several times the text: of a file above 512 MiB evenly spaced parts are used, at
// most so much in all. UserError: no text, vocabulary too small for the text's characters, `out` exists and
// overwrite is off.
int64_t train_sentencepiece(const std::filesystem::path& input, int64_t vocab_size,
                            const std::filesystem::path& out, bool overwrite = false);

// Text of tokens that come one by one (samples): hands out whole characters only.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // What is complete after this token; valid UTF-8 (invalid bytes become U+FFFD), often empty.
  std::string push(int32_t id);
  // What is left.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace narrowgauge::data
