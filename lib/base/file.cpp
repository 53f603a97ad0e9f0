#include "lib/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>
#include <utility>

#include "lib/base/error.h"

namespace narrowgauge {
namespace {

FileDescriptor open_or_throw(const std::filesystem::path& path, int flags, std::string_view action) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0) throw_io_error(action, path, errno);
  return FileDescriptor(fd);
}

// Removes the temporary file unless it was renamed into place.
struct TemporaryFile {
  std::filesystem::path path;
  bool keep = false;
  ~TemporaryFile() {
    if (!keep) ::unlink(path.c_str());
  }
};

}  // namespace

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

FileDescriptor::~FileDescriptor() { close(); }

void FileDescriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

FileDescriptor open_to_read(const std::filesystem::path& path) {
  FileDescriptor file = open_or_throw(path, O_RDONLY, "read");
  struct stat info {};
  if (::fstat(file.get(), &info) == 0 && S_ISDIR(info.st_mode)) throw_io_error("read", path, EISDIR);
  return file;
}

FileDescriptor open_to_write(const std::filesystem::path& path) {
  return open_or_throw(path, O_WRONLY | O_CREAT | O_TRUNC, "write");
}

FileDescriptor open_to_append(const std::filesystem::path& path) {
  return open_or_throw(path, O_WRONLY | O_CREAT | O_APPEND, "write");
}

void write_all(int fd, const void* data, size_t bytes, const std::filesystem::path& path) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, next, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("write", path, errno);
    next += n;
    bytes -= static_cast<size_t>(n);
  }
}

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw_io_error("write", "standard output", errno);
  }
}

void ignore_file_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

std::string read_file(const std::filesystem::path& path) {
  const FileDescriptor file = open_to_read(path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw_io_error("read", path, errno);
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (true) {  // pipes and /proc files say 0 bytes: read until the end whatever the size
    if (done == bytes.size()) bytes.resize(bytes.size() + 4096);
    const ssize_t n = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("read", path, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

void atomic_write_file(const std::filesystem::path& path, std::string_view bytes) {
  TemporaryFile temporary{fmt::format("{}.tmp-{}", path.string(), ::getpid())};
  {
    const FileDescriptor file = open_to_write(temporary.path);
    write_all(file.get(), bytes.data(), bytes.size(), path);
    if (::fsync(file.get()) != 0) throw_io_error("write", path, errno);
  }
  if (::rename(temporary.path.c_str(), path.c_str()) != 0) throw_io_error("replace", path, errno);
  temporary.keep = true;
  fsync_path(path.has_parent_path() ? path.parent_path() : ".");
}

void fsync_path(const std::filesystem::path& path) {
  const FileDescriptor file = open_or_throw(path, O_RDONLY, "flush");
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP) throw_io_error("flush", path, errno);
}

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_io_error("create the folder", path, error.value());
  if (!std::filesystem::is_directory(path)) throw_io_error("create the folder", path, ENOTDIR);
}

void remove_tree(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw_io_error("remove", path, error.value());
}

}  // namespace narrowgauge
