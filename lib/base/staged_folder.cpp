#include "lib/base/staged_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "lib/base/error.h"
#include "lib/base/file.h"

namespace narrowgauge {
namespace {

namespace fs = std::filesystem;

// Absolute, without a trailing slash, links followed.
fs::path resolved(const fs::path& target) {
  if (target.empty()) throw UserError("no folder to write: give --out FOLDER");
  fs::path path = fs::absolute(target).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code ignored;
  return fs::is_symlink(path, ignored) ? fs::weakly_canonical(path) : path;
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_io_error("write", to, errno);
}

}  // namespace

StagedFolder::StagedFolder(const fs::path& target)
    : target_(resolved(target)),
      path_(target_.parent_path() /
            fmt::format("{}{}-{}", kStagedPrefix, target_.filename().string(), ::getpid())) {
  remove_tree(path_);
  make_folder(path_);
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;  // nothing more can be done for it; its name says what it is
  fs::remove_all(path_, ignored);
}

void StagedFolder::publish() {
  fsync_path(path_);
  // A target that is missing or an empty folder is replaced by rename itself.
  if (std::rename(path_.c_str(), target_.c_str()) != 0) {
    if (errno != EEXIST && errno != ENOTEMPTY) throw_io_error("write", target_, errno);
    exchange();
  }
  fsync_path(target_.parent_path());
}

void StagedFolder::exchange() {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) throw_io_error("write", target_, errno);
  // A file system that cannot exchange: two renames, the first undone when the second fails.
  const fs::path old = path_.string() + "-old";
  rename_or_throw(target_, old);
  if (std::rename(path_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    rename_or_throw(old, target_);
    throw_io_error("write", target_, error);
  }
  remove_tree(old);
}

}  // namespace narrowgauge
