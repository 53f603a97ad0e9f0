#pragma once
#include <filesystem>

namespace narrowgauge {

// Every staged folder's name begins with this; one whose program was killed stays behind.
inline constexpr const char* kStagedPrefix = ".partial-";

// A folder that is filled as PARENT/.partial-NAME-PID and then takes the name PARENT/NAME, so that the target
// is whole at all times. What was not published is removed. The files in it are the caller's to fsync.
class StagedFolder {
 public:
  // Creates the folder, and the target's parents where missing. A target that is a link stands for the folder
  // that it leads to. UserError when that fails.
  explicit StagedFolder(const std::filesystem::path& target);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }      // to be filled
  [[nodiscard]] const std::filesystem::path& target() const { return target_; }  // absolute

  // fsync, rename, fsync of the parent. A folder at the target is replaced with all it holds, in one step
  // where the file system can. UserError when that fails; then the target is as it was.
  void publish();

 private:
  void exchange();
  std::filesystem::path target_;
  std::filesystem::path path_;
};

}  // namespace narrowgauge
