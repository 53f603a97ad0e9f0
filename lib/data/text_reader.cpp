#include "lib/data/text_reader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/data/utf8.h"

namespace narrowgauge::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = size_t{64} * 1024;
constexpr size_t kPieceBytes = size_t{64} * 1024;
constexpr size_t kMostPieceBytes = size_t{1024} * 1024;
constexpr size_t kMostLineBytes = size_t{256} << 20;

void list_files(const fs::path& folder, std::vector<std::string>& out) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with('.');
    if (hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (!hidden && entry->is_regular_file()) found.push_back(entry->path().string());
  }
  if (error) throw_io_error("read folder", folder, error.value());
  if (found.empty()) {
    throw UserError(
        fmt::format("{}: no file in this folder (names that begin with a dot do not count); correct --input",
                    folder.string()));
  }
  std::sort(found.begin(), found.end());
  out.insert(out.end(), found.begin(), found.end());
}

std::vector<std::string> expand(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const auto& input : inputs) {
    std::error_code ignored;
    const auto status = fs::status(input, ignored);
    if (fs::is_directory(status)) {
      list_files(input, files);
    } else if (input == "-" || fs::exists(status)) {
      files.push_back(input);
    } else {
      throw UserError(fmt::format("{}: no such file or folder; correct --input", input));
    }
  }
  if (files.empty())
    throw UserError("no text to read: give --input a file, a folder with files, or - for standard input");
  return files;
}

}  // namespace

TextReader::TextReader(TextReaderOptions options, const Tokenizer& tokenizer)
    : options_(std::move(options)), tokenizer_(tokenizer), files_(expand(options_.inputs)) {}

bool TextReader::next(TextPiece& piece) {
  do {
    check_stop();
    if (!in_document_ && !begin_document()) return false;
    take(piece);
  } while (piece.text.empty());
  return true;
}

void TextReader::take(TextPiece& piece) {
  size_t length = 0;
  for (size_t window = kPieceBytes; length == 0; window *= 2) {
    read_more(window);
    const auto text = std::string_view(text_).substr(text_at_);
    piece.ends = complete_ && text.size() <= window;
    if (piece.ends) {
      length = text.size();
      break;
    }
    length = tokenizer_.cut(text.substr(0, window));
    if (length == 0 && window >= kMostPieceBytes) length = whole_characters(text.substr(0, window));
  }
  piece.text.assign(text_, text_at_, length);
  piece.continues = begun_;
  text_at_ += length;
  begun_ = true;
  in_document_ = !piece.ends;
}

void TextReader::read_more(size_t bytes) {
  if (text_at_ > text_.size() / 2) {
    text_.erase(0, text_at_);
    text_at_ = 0;
  }
  while (!complete_ && text_.size() - text_at_ < bytes) complete_ = !read_block(text_);
}

bool TextReader::begin_document() {
  text_.clear();
  text_at_ = 0;
  begun_ = false;
  complete_ = options_.jsonl;
  if (!options_.jsonl) {
    in_document_ = open_next();
    return in_document_;
  }
  while (!file_.is_open() || !read_line()) {
    if (!open_next()) return false;
  }
  parse_line();
  in_document_ = true;
  return true;
}

bool TextReader::open_next() {
  if (next_file_ == files_.size()) return false;
  const std::string& file = files_[next_file_++];
  name_ = file == "-" ? "standard input" : file;
  if (file == "-") {
    const int copy = dup(STDIN_FILENO);
    if (copy < 0) throw_io_error("read", name_, errno);
    file_ = FileDescriptor(copy);
  } else {
    file_ = open_to_read(file);
  }
  line_number_ = 0;
  return true;
}

bool TextReader::read_block(std::string& out) {
  const size_t before = out.size();
  out.resize(before + kBlockBytes);
  ssize_t got = -1;
  while ((got = ::read(file_.get(), out.data() + before, kBlockBytes)) < 0 && errno == EINTR) check_stop();
  if (got < 0) throw_io_error("read", name_, errno);
  out.resize(before + static_cast<size_t>(got));
  bytes_ += got;
  return got > 0;
}

// The next line that is not blank; false at the end of the file.
bool TextReader::read_line() {
  for (;;) {
    size_t searched = lines_at_;
    size_t end = std::string::npos;
    while ((end = lines_.find('\n', searched)) == std::string::npos) {
      searched = lines_.size();
      if (searched - lines_at_ > kMostLineBytes) {
        throw UserError(fmt::format("{}:{}: line of more than 256 MiB; JSONL needs one document a line",
                                    name_, line_number_ + 1));
      }
      if (lines_at_ > 0) {
        lines_.erase(0, lines_at_);
        searched -= lines_at_;
        lines_at_ = 0;
      }
      if (!read_block(lines_)) break;
    }
    if (end == std::string::npos && lines_at_ == lines_.size()) return false;
    end = std::min(end, lines_.size());
    line_.assign(lines_, lines_at_, end - lines_at_);
    lines_at_ = std::min(end + 1, lines_.size());
    ++line_number_;
    if (line_.find_first_not_of(" \t\r") != std::string::npos) return true;
  }
}

void TextReader::parse_line() {
  const auto refuse = [&](const std::string& what) {
    throw UserError(fmt::format("{}:{}: {}; every line must be a JSON object with a string \"{}\" (--field)",
                                name_, line_number_, what, options_.field));
  };
  nlohmann::json row;
  try {
    row = nlohmann::json::parse(line_);
  } catch (const nlohmann::json::exception& error) {
    std::string reason = error.what();
    reason.erase(0, reason.find("] ") == std::string::npos ? 0 : reason.find("] ") + 2);
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    refuse(fmt::format("malformed JSON: {:.200}", replace_invalid_utf8(reason)));
  }
  if (!row.is_object()) refuse(fmt::format("a JSON {}", row.type_name()));
  const auto field = row.find(options_.field);
  if (field == row.end()) refuse("an object without that field");
  if (!field->is_string()) refuse(fmt::format("the field is a JSON {}", field->type_name()));
  text_ = std::move(field->get_ref<std::string&>());
}

void TextReader::check_stop() const {
  if (options_.stop && options_.stop()) throw UserError("interrupted; nothing was written");
}

}  // namespace narrowgauge::data
