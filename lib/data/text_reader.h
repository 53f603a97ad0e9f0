#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lib/base/file.h"
#include "lib/data/tokenizer.h"

namespace narrowgauge::data {

// A part of a document, of at most about a MiB.
struct TextPiece {
  std::string text;
  bool continues = false;  // a piece of the same document came before
  bool ends = false;       // the document's last one
};

struct TextReaderOptions {
  // Files, folders (every file in them, also deeper, in the order of their sorted paths; names that begin
  // with a dot are left out) and "-" for standard input, read in this order.
  std::vector<std::string> inputs;
  bool jsonl = false;  // a document per line: the string `field` of a JSON object; else one per file
  std::string field = "text";
  std::function<bool()>
      stop;  // asked now and then and when a signal interrupts a read: true ends with UserError
};

// Reads documents in pieces that the tokenizer can encode one by one with the same result as the whole
// document (Tokenizer::cut). Only where a MiB of text has no place to cut is it cut between any two
// characters. Documents without text are left out. Memory is a few MiB, or a few times the longest line (256
// MiB at most) of JSONL.
class TextReader {
 public:
  // UserError: no input, an input that is missing, a folder without files.
  TextReader(TextReaderOptions options, const Tokenizer& tokenizer);

  // False at the end. UserError: unreadable file, malformed line ("FILE:LINE: ...").
  bool next(TextPiece& piece);
  [[nodiscard]] int64_t bytes_read() const { return bytes_; }

 private:
  bool begin_document();
  bool open_next();
  bool read_block(std::string& out);
  bool read_line();
  void parse_line();
  void read_more(size_t bytes);
  void take(TextPiece& piece);
  void check_stop() const;

  TextReaderOptions options_;
  const Tokenizer& tokenizer_;
  std::vector<std::string> files_;
  size_t next_file_ = 0;
  std::string name_;  // of the open file
  FileDescriptor file_;
  int64_t bytes_ = 0;

  std::string lines_;  // JSONL: read, but not yet handed out from lines_at_
  size_t lines_at_ = 0;
  int64_t line_number_ = 0;
  std::string line_;

  std::string text_;  // of the open document, from text_at_
  size_t text_at_ = 0;
  bool in_document_ = false;
  bool begun_ = false;     // a piece of it was handed out
  bool complete_ = false;  // all that is left of it lies in text_
};

}  // namespace narrowgauge::data
