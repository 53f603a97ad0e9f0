#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "lib/base/file.h"

namespace narrowgauge::data {

// `automatic`: `map` on a local file system, `read` on 9p and network ones.
enum class FileAccess { automatic, map, read };

// The bytes of one file that nobody changes meanwhile. Thread-safe.
class FileBytes {
 public:
  // UserError: missing, unreadable, a folder.
  FileBytes(const std::filesystem::path& path, FileAccess access);
  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  [[nodiscard]] int64_t size() const { return size_; }
  // `bytes` bytes from `offset`, which must lie inside the file: a pointer into the map, else into `scratch`,
  // which is then filled. UserError when the device fails or the file has shrunk.
  const std::byte* view(int64_t offset, int64_t bytes, std::vector<std::byte>& scratch) const;

 private:
  std::filesystem::path path_;
  int64_t size_ = 0;
  FileDescriptor file_;  // only when reading
  void* map_ = nullptr;  // only when mapping
};

}  // namespace narrowgauge::data
