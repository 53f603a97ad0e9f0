#pragma once
#include <filesystem>

namespace narrowgauge::data {

// A folder that appears under its name whole or not at all. It is filled as NAME.tmp-PID, which goes away
// unless commit() is reached.
class OutputFolder {
 public:
  // Creates the temporary folder and the parents. UserError: `name` is a file; a folder that is not empty,
  // without `overwrite`; with it, a folder that holds anything but shards and tokenizers.
  OutputFolder(std::filesystem::path name, bool overwrite);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return temporary_; }
  void commit();  // flushes, then takes the place of what was there

 private:
  void exchange();
  std::filesystem::path name_;
  std::filesystem::path temporary_;
  bool overwrite_;
};

}  // namespace narrowgauge::data
