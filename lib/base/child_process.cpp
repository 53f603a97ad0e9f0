#include "lib/base/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "lib/base/error.h"

namespace narrowgauge {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{50};
constexpr std::chrono::seconds kGrace{3};  // between SIGTERM and SIGKILL

// In the forked child: only async-signal-safe calls. Never returns; a failure goes into `report`.
[[noreturn]] void become(char* const* arguments, int log, int report, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == parent) {  // else it died before the line above
    const int empty = ::open("/dev/null", O_RDONLY);
    ::dup2(empty, STDIN_FILENO);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    ::execv(arguments[0], arguments);
  }
  const int error = errno;
  static_cast<void>(!::write(report, &error, sizeof(error)));
  ::_exit(127);
}

pid_t start(const std::vector<std::string>& arguments, int log) {
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  std::array<int, 2> report{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0) throw UserError(std::strerror(errno));
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become(pointers.data(), log, report[1], parent);
  int error = child < 0 ? errno : 0;
  ::close(report[1]);
  if (child > 0) {
    ::setpgid(child, child);                                       // here too: whoever is first
    if (::read(report[0], &error, sizeof(error)) <= 0) error = 0;  // exec closed the pipe
  }
  ::close(report[0]);
  if (error != 0) {
    if (child > 0) ::waitpid(child, nullptr, 0);
    throw UserError(fmt::format("{} cannot be started: {}", arguments[0], std::strerror(error)));
  }
  return child;
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                   double seconds, const std::function<bool()>& stop) {
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) {
    throw UserError(fmt::format("{} cannot be written: {}", log.string(), std::strerror(errno)));
  }
  pid_t child = 0;
  try {
    child = start(arguments, file);
  } catch (...) {
    ::close(file);
    throw;
  }
  ::close(file);

  ChildEnd end;
  bool ending = false;
  Clock::time_point limit =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    const bool stopped = !ending && stop();
    const bool late = Clock::now() >= limit;
    if (stopped || late) {
      if (!ending) end.why = stopped ? ChildEnd::Why::stopped : ChildEnd::Why::timed_out;
      ::kill(-child, ending ? SIGKILL : SIGTERM);
      ending = true;
      limit = Clock::now() + kGrace;
    }
    std::this_thread::sleep_for(kPoll);
  }
  ::kill(-child, SIGKILL);  // what it may have left behind
  if (WIFSIGNALED(status) && !ending) end.why = ChildEnd::Why::signalled;
  end.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

}  // namespace narrowgauge
