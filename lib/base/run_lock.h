#pragma once
#include <filesystem>

#include "lib/base/file.h"

namespace narrowgauge {

// Holds RUN/lock (flock) as long as it lives, so that two programs cannot train into one run folder. The
// system lets go of it when the process dies, however it dies; the file stays behind and means nothing by
// itself.
class RunLock {
 public:
  // The folder must exist. UserError, with the holder's process id, when another program (or another RunLock
  // of this one) holds it, or when the file cannot be written. Where the file system has no locks, a warning
  // is logged.
  explicit RunLock(const std::filesystem::path& run);

 private:
  FileDescriptor file_;
};

}  // namespace narrowgauge
