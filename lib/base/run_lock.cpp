#include "lib/base/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "lib/base/error.h"
#include "lib/base/log.h"

namespace narrowgauge {
namespace {

std::string holder(const std::filesystem::path& path) {
  std::string text = read_file(path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "unknown" : text;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run) {
  const std::filesystem::path path = run / "lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw_io_error("write", path, errno);
  file_ = FileDescriptor(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      throw UserError(
          fmt::format("{} is in use by another narrowgauge (process {}): stop that one, or choose "
                      "another --run folder",
                      run.string(), holder(path)));
    }
    log_warn(fmt::format("{}: this file system has no locks; take care that only one program uses the folder",
                         run.string()));
    return;
  }
  const std::string text = fmt::format("{}\n", ::getpid());
  if (::ftruncate(fd, 0) != 0) throw_io_error("write", path, errno);
  write_all(fd, text.data(), text.size(), path);
}

}  // namespace narrowgauge
