#pragma once
#include <filesystem>

namespace narrowgauge {

// A new empty folder where temporary files go; it goes with its object.
class ScratchFolder {
 public:
  ScratchFolder();  // UserError when it cannot be made
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace narrowgauge
