#pragma once
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <functional>
#include <string>

namespace narrowgauge::test {

struct ChildResult {
  int exit_code = -1;  // -1: killed by a signal
  std::string output;  // of stdout and stderr
};

// Runs `body` in a forked process, whose exit code it returns. An exception that leaves it ends it through
// std::terminate, as in main.
inline ChildResult in_child(const std::function<int()>& body) {
  int pipe_ends[2];
  if (::pipe(pipe_ends) != 0) return {};
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    // The signal handlers of the test framework are not the program's.
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM}) std::signal(number, SIG_DFL);
    ::dup2(pipe_ends[1], STDOUT_FILENO);
    ::dup2(pipe_ends[1], STDERR_FILENO);
    ::close(pipe_ends[0]);
    ::close(pipe_ends[1]);
    const int code = [&]() noexcept { return body(); }();
    std::fflush(nullptr);
    ::_exit(code);
  }
  ::close(pipe_ends[1]);
  ChildResult result;
  char buffer[4096];
  for (ssize_t n; (n = ::read(pipe_ends[0], buffer, sizeof(buffer))) > 0;) {
    result.output.append(buffer, static_cast<size_t>(n));
  }
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

// No file of this process may grow beyond `bytes`: what a full disk looks like, without root.
inline void limit_file_size(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

}  // namespace narrowgauge::test
