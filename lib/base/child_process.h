#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace narrowgauge {

// How a child process ended.
struct ChildEnd {
  enum class Why { exited, signalled, timed_out, stopped };
  Why why = Why::exited;
  int code = 0;  // exit code, or the signal's number
};

// Runs a program and waits for it: arguments[0] is its path, stdin is empty, stdout and stderr replace the
// file `log`. After `seconds`, or when `stop` (asked every 50 ms) says so, its whole process group gets
// SIGTERM and, where that does not help, SIGKILL. It does not outlive this process, whatever ends that: call
// from the main thread. UserError when it cannot be started.
ChildEnd run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log,
                   double seconds, const std::function<bool()>& stop);

}  // namespace narrowgauge
