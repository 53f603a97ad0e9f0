#include "lib/data/sentencepiece.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <bitset>

#include "lib/base/checksum.h"
#include "lib/base/error.h"
#include "lib/base/file.h"

namespace narrowgauge::data {
namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581, SentencePiece's blank inside pieces
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string with_blanks(std::string_view piece) {
  std::string text(piece);
  for (size_t at = 0; (at = text.find(kBlank, at)) != std::string::npos; ++at)
    text.replace(at, kBlank.size(), " ");
  return text;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& path) : model_(read_file(path)) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok() || processor_.GetPieceSize() < 1) {
      throw UserError(fmt::format(
          "{}: no SentencePiece model or a damaged one; give a file made by narrowgauge tokenizer "
          "train or spm_train, or the word byte",
          path.string()));
    }
    end_ = processor_.eos_id() >= 0 ? processor_.eos_id() : processor_.bos_id();
    if (end_ < 0) {
      throw UserError(fmt::format(
          "{}: a SentencePiece model without an end-of-sentence token, but documents must be told "
          "apart; train it with eos_id >= 0",
          path.string()));
    }
    for (int id = 0; id < processor_.GetPieceSize(); ++id) add_piece(id);
    const auto probe = encode_whole("a");
    dummy_prefix_ = !probe.empty() && processor_.IdToPiece(probe.front()).starts_with(kBlank);
  }

  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    return encode_whole(text);
  }

  [[nodiscard]] std::vector<int32_t> encode_continuation(std::string_view text) const override {
    // cut() leaves a blank in front, which the model's own leading blank replaces.
    if (dummy_prefix_ && text.starts_with(' ')) text.remove_prefix(1);
    return encode_whole(text);
  }

  [[nodiscard]] size_t cut(std::string_view text) const override {
    for (size_t at = text.size(); at-- > 1;) {
      const auto before = static_cast<unsigned char>(text[at - 1]);
      const auto after = static_cast<unsigned char>(text[at]);
      if ((after & 0xC0) == 0x80 || joined_[before * 256U + after]) continue;
      if (!dummy_prefix_ || after == ' ') return at;
    }
    return 0;
  }

  [[nodiscard]] std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (const int32_t id : ids) append_bytes(id, text);
    if (dummy_prefix_ && text.starts_with(' ')) text.erase(0, 1);
    return text;
  }

  void append_bytes(int32_t id, std::string& out) const override {
    if (id < 0 || static_cast<size_t>(id) >= bytes_.size()) {
      out += kReplacement;
    } else {
      out += bytes_[static_cast<size_t>(id)];
    }
  }

  [[nodiscard]] int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  [[nodiscard]] int32_t end_of_document() const override { return end_; }
  [[nodiscard]] uint64_t hash() const override { return checksum(model_); }
  void save(const std::filesystem::path& folder) const override {
    atomic_write_file(folder / kSentencePieceFileName, model_);
  }

 private:
  // What the piece stands for in a text, and which bytes it joins.
  void add_piece(int id) {
    const std::string& piece = processor_.IdToPiece(id);
    std::string text;
    if (processor_.IsUnknown(id)) {
      text = kReplacement;
    } else if (processor_.IsByte(id)) {
      text = static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));  // "<0xE2>"
    } else if (!processor_.IsControl(id)) {
      text = with_blanks(piece);
    }
    for (size_t i = 1; i < text.size(); ++i) {
      joined_.set(static_cast<unsigned char>(text[i - 1]) * 256U + static_cast<unsigned char>(text[i]));
    }
    bytes_.push_back(std::move(text));
  }

  [[nodiscard]] std::vector<int32_t> encode_whole(std::string_view text) const {
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok()) throw std::runtime_error("SentencePiece: " + status.ToString());
    return ids;
  }

  std::string model_;  // the file
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> bytes_;  // of every id
  // Pairs of bytes that stand side by side inside some piece. No token can span any other pair, so that a
  // text may be cut there: merging on one side does not depend on the other.
  std::bitset<65536> joined_;
  int32_t end_ = -1;
  bool dummy_prefix_ = false;  // the model puts a blank in front of every text
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model) {
  return std::make_unique<SentencePieceTokenizer>(model);
}

}  // namespace narrowgauge::data
