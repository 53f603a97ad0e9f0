#include "lib/io/temporary_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/units.h"

namespace narrowgauge::io {
namespace {

std::filesystem::path without_trailing_slash(const std::filesystem::path& path) {
  const std::filesystem::path clean = std::filesystem::absolute(path).lexically_normal();
  return clean.has_filename() ? clean : clean.parent_path();
}

void rename_or_throw(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_io_error("create", to, errno);
}

}  // namespace

TemporaryFolder::TemporaryFolder(const std::filesystem::path& target)
    : target_(without_trailing_slash(target)),
      path_(target_.parent_path() /
            fmt::format("{}{}-{}", kTemporaryPrefix, target_.filename().string(), ::getpid())) {
  remove_tree(path_);
  make_folder(path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TemporaryFolder::publish() {
  fsync_path(path_);
  // A target that is missing or an empty folder is replaced by rename itself.
  if (std::rename(path_.c_str(), target_.c_str()) != 0) {
    if (errno != EEXIST && errno != ENOTEMPTY) throw_io_error("create", target_, errno);
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
      const std::filesystem::path old = path_.string() + "-old";
      rename_or_throw(target_, old);
      rename_or_throw(path_, target_);
      remove_tree(old);
    }
  }
  fsync_path(target_.parent_path());
}

void require_free_space(const std::filesystem::path& path, int64_t bytes, const std::string& remedy) {
  const uint64_t free = free_bytes(path);
  if (free >= static_cast<uint64_t>(bytes)) return;
  throw UserError(fmt::format("{} needs {}, but only {} are free there: {}", path.string(),
                              format_bytes(bytes), format_bytes(static_cast<int64_t>(free)), remedy));
}

}  // namespace narrowgauge::io
