#pragma once
#include "lib/data/tokenizer.h"

namespace narrowgauge::data {

// 259 ids: 0 padding, 1 beginning of document (never produced), 2 end of document, byte b is 3 + b.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kEndOfDocument = 2;
  static constexpr int32_t kFirstByte = 3;
  static constexpr int32_t kVocabSize = kFirstByte + 256;
  static constexpr const char* kFileName = "tokenizer.byte";

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  [[nodiscard]] std::string decode(const std::vector<int32_t>& ids) const override;
  [[nodiscard]] int64_t vocab_size() const override { return kVocabSize; }
  [[nodiscard]] int32_t end_of_document() const override { return kEndOfDocument; }
  [[nodiscard]] uint64_t hash() const override;
  void save(const std::filesystem::path& folder) const override;
  [[nodiscard]] size_t cut(std::string_view text) const override {
    return text.empty() ? 0 : text.size() - 1;
  }
  [[nodiscard]] std::vector<int32_t> encode_continuation(std::string_view text) const override {
    return encode(text);
  }
  void append_bytes(int32_t id, std::string& out) const override;
};

}  // namespace narrowgauge::data
