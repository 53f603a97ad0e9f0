#include "lib/data/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/data/byte_tokenizer.h"
#include "lib/data/sentencepiece.h"
#include "lib/data/shard_format.h"

namespace narrowgauge::data {
namespace {

namespace fs = std::filesystem;

bool is_ours(const fs::path& path) {
  const auto name = path.filename();
  return path.extension() == kShardExtension || name == kSentencePieceFileName ||
         name == ByteTokenizer::kFileName;
}

// True when there is something to replace.
bool check_target(const fs::path& name, bool overwrite) {
  std::error_code ignored;
  const auto status = fs::status(name, ignored);
  if (!fs::exists(status)) return false;
  if (!fs::is_directory(status)) {
    throw UserError(
        fmt::format("{}: a file is in the way of the folder to write; give another --out", name.string()));
  }
  if (fs::is_empty(name)) return false;
  if (!overwrite) {
    throw UserError(fmt::format(
        "{}: the folder exists and is not empty; give another --out or add --overwrite", name.string()));
  }
  for (const auto& entry : fs::directory_iterator(name)) {
    if (!is_ours(entry.path())) {
      throw UserError(
          fmt::format("{}: --overwrite replaces only folders of token shards, but this one holds {}; give "
                      "another --out",
                      name.string(), entry.path().filename().string()));
    }
  }
  return true;
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_io_error("write", to, errno);
}

}  // namespace

OutputFolder::OutputFolder(fs::path name, bool overwrite) : name_(std::move(name)), overwrite_(overwrite) {
  if (name_.empty()) throw UserError("no folder to write: give --out FOLDER");
  if (!name_.has_filename()) name_ = name_.parent_path();  // "data/book/"
  std::error_code ignored;
  if (fs::is_symlink(name_, ignored)) name_ = fs::canonical(name_);
  check_target(name_, overwrite_);
  temporary_ = name_;
  temporary_ += fmt::format(".tmp-{}", getpid());
  remove_tree(temporary_);
  make_folder(temporary_);
}

OutputFolder::~OutputFolder() {
  try {
    remove_tree(temporary_);
  } catch (const std::exception&) {
    // Nothing more can be done for it; its name says what it is.
  }
}

void OutputFolder::commit() {
  fsync_path(temporary_);
  if (check_target(name_, overwrite_)) {
    exchange();
  } else {
    rename_or_throw(temporary_, name_);
  }
  fsync_path(name_.has_parent_path() ? name_.parent_path() : fs::path("."));
}

void OutputFolder::exchange() {
  if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, name_.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) throw_io_error("write", name_, errno);
  // A file system that cannot exchange: two renames, the first undone when the second fails.
  fs::path old = name_;
  old += fmt::format(".old-{}", getpid());
  rename_or_throw(name_, old);
  if (std::rename(temporary_.c_str(), name_.c_str()) != 0) {
    const int error = errno;
    rename_or_throw(old, name_);
    throw_io_error("write", name_, error);
  }
  remove_tree(old);
}

}  // namespace narrowgauge::data
