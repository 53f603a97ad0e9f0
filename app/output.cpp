#include "app/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "lib/base/error.h"
#include "lib/base/file.h"

namespace narrowgauge::app {

void hold_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // The lowest free number is fd itself. Standard output stays unwritable: print reports it.
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void print(std::string_view text) {
  const int flags = ::fcntl(STDOUT_FILENO, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) {
    throw UserError(
        "cannot write standard output: it is closed; leave it open, or send it to a file or /dev/null");
  }
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  write_stdout(text);
  std::signal(SIGPIPE, before);
}

}  // namespace narrowgauge::app
