#pragma once
#include <filesystem>
#include <string>

namespace narrowgauge::io {

// Every temporary folder's name begins with this.
inline constexpr const char* kTemporaryPrefix = ".partial-";

// A folder that is filled under a temporary name beside its target and then takes the target's name, so that
// the target is always whole. What was not published is removed. The files in it are the caller's to fsync.
class TemporaryFolder {
 public:
  // Creates the folder, and the target's parent where missing. UserError when that fails.
  explicit TemporaryFolder(const std::filesystem::path& target);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // fsync, rename, fsync of the parent. An existing target is replaced in one step where the file system can.
  void publish();

 private:
  std::filesystem::path target_;  // absolute
  std::filesystem::path path_;
};

// UserError with both figures and `remedy` when fewer than `bytes` bytes are free on the file system of
// `path`.
void require_free_space(const std::filesystem::path& path, int64_t bytes, const std::string& remedy);

}  // namespace narrowgauge::io
