#include "lib/data/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

#include "lib/base/error.h"

namespace narrowgauge::data {

FileBytes::FileBytes(const std::filesystem::path& path, FileAccess access) : path_(path) {
  FileDescriptor file = open_to_read(path);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw_io_error("read", path, errno);
  size_ = status.st_size;
  const bool map =
      access == FileAccess::map || (access == FileAccess::automatic && !is_network_file_system(path));
  if (map && size_ > 0) {
    void* address = mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, file.get(), 0);
    if (address != MAP_FAILED) {
      map_ = address;
      return;
    }
    if (errno != ENODEV) throw_io_error("map", path, errno);
  }
  file_ = std::move(file);
}

FileBytes::~FileBytes() {
  if (map_ != nullptr) munmap(map_, static_cast<size_t>(size_));
}

const std::byte* FileBytes::view(int64_t offset, int64_t bytes, std::vector<std::byte>& scratch) const {
  if (offset < 0 || bytes < 0 || bytes > size_ - offset) {
    throw std::out_of_range(
        fmt::format("{}: bytes [{}, {}) of {}", path_.string(), offset, offset + bytes, size_));
  }
  if (map_ != nullptr) return static_cast<const std::byte*>(map_) + offset;
  scratch.resize(static_cast<size_t>(bytes));
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        pread(file_.get(), scratch.data() + done, static_cast<size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io_error("read", path_, errno);
    if (got == 0) {
      throw UserError(
          fmt::format("{}: ended at byte {} while it was read, but had {} bytes when it was opened; "
                      "do not change data in use",
                      path_.string(), offset + done, size_));
    }
    done += got;
  }
  return scratch.data();
}

}  // namespace narrowgauge::data
