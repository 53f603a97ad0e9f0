#include "lib/base/scratch_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "lib/base/error.h"

namespace narrowgauge {

ScratchFolder::ScratchFolder() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::string pattern = (parent / "narrowgauge-XXXXXX").string();
  if (error || ::mkdtemp(pattern.data()) == nullptr) {
    throw UserError(
        fmt::format("no temporary folder can be made in {}: {}; point TMPDIR to a folder on a "
                    "disk with some space",
                    error ? "TMPDIR" : parent.string(), error ? error.message() : std::strerror(errno)));
  }
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace narrowgauge
