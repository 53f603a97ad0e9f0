#include <fmt/format.h>
#include <sentencepiece_trainer.h>

#include <unistd.h>
#include <cerrno>
#include <thread>
#include <unordered_map>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/data/sentencepiece.h"

namespace narrowgauge::data {
namespace {

constexpr size_t kPartBytes = 4000;  // below the trainer's max_sentence_length, 4192
constexpr uint64_t kMostBytes = uint64_t{512} << 20;

// Hands the trainer a text in parts that end after a line break when one is near. (The trainer's own reader
// strips line breaks, so that no token could contain one.)
class TextParts final : public sentencepiece::SentenceIterator {
 public:
  explicit TextParts(const std::filesystem::path& path) : path_(path), file_(open_to_read(path)) {
    std::error_code unknown;  // of a pipe
    const uint64_t size = std::filesystem::file_size(path, unknown);
    if (!unknown) every_ = 1 + size / (kMostBytes + 1);
    Next();
  }
  [[nodiscard]] bool done() const override { return part_.empty(); }
  void Next() override {
    for (uint64_t skip = 0; skip < every_; ++skip) read_part();
  }
  [[nodiscard]] const std::string& value() const override { return part_; }
  [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }

 private:
  void read_part() {
    while (!ended_ && buffer_.size() < kPartBytes) {
      char block[1 << 16];
      const ssize_t got = ::read(file_.get(), block, sizeof(block));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw_io_error("read", path_, errno);
      buffer_.append(block, static_cast<size_t>(got));
      ended_ = got == 0;
    }
    size_t length = std::min(buffer_.size(), kPartBytes);
    if (length < buffer_.size()) {
      const size_t line_end = buffer_.rfind('\n', length - 1);
      if (line_end != std::string::npos) {
        length = line_end + 1;
      } else {
        while (length > kPartBytes - 4 && (static_cast<unsigned char>(buffer_[length]) & 0xC0) == 0x80)
          --length;
      }
    }
    part_ = buffer_.substr(0, length);
    buffer_.erase(0, length);
  }

  std::filesystem::path path_;
  FileDescriptor file_;
  uint64_t every_ = 1;  // every how many parts one is used
  std::string buffer_;
  std::string part_;
  bool ended_ = false;
};

std::unordered_map<std::string, std::string> trainer_options(int64_t vocab_size) {
  return {{"model_type", "bpe"},
          {"vocab_size", std::to_string(vocab_size)},
          {"hard_vocab_limit", "false"},
          {"byte_fallback", "true"},
          {"character_coverage", "0.9999"},
          {"normalization_rule_name", "identity"},
          {"remove_extra_whitespaces", "false"},
          {"add_dummy_prefix", "false"},
          {"allow_whitespace_only_pieces", "true"},
          {"split_digits", "true"},
          {"num_threads", std::to_string(std::max(1U, std::thread::hardware_concurrency()))},
          {"minloglevel", "2"}};
}

}  // namespace

int64_t train_sentencepiece(const std::filesystem::path& input, int64_t vocab_size,
                            const std::filesystem::path& out, bool overwrite) {
  if (!overwrite && std::filesystem::exists(out)) {
    throw UserError(fmt::format("{}: exists already; give another --out or add --overwrite", out.string()));
  }
  TextParts parts(input);
  if (parts.done())
    throw UserError(fmt::format("{}: empty, but a tokenizer needs text to be trained on", input.string()));
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(trainer_options(vocab_size), &parts, &model);
  if (!status.ok()) {
    const std::string reason = status.ToString();
    if (reason.find("Vocabulary size is smaller") != std::string::npos) {
      throw UserError(
          fmt::format("{}: a vocabulary of {} is too small for 256 bytes, 3 special tokens and this text's "
                      "characters; ask for a larger one",
                      input.string(), vocab_size));
    }
    throw UserError(fmt::format("{}: SentencePiece cannot train on this text: {}", input.string(), reason));
  }
  if (!out.parent_path().empty()) make_folder(out.parent_path());
  atomic_write_file(out, model);
  return load_sentencepiece(out)->vocab_size();
}

}  // namespace narrowgauge::data
