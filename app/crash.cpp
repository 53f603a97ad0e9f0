#include "app/crash.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "lib/base/error.h"

namespace narrowgauge::app {
namespace {

constexpr int kMaxFrames = 32;
constexpr std::array kFatalSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
alignas(16) std::array<char, 1 << 16> signal_stack;  // a stack overflow leaves none to run on

std::string demangled(const char* symbol) {
  int status = 0;
  char* name = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string text = status == 0 ? name : symbol;
  std::free(name);
  return text;
}

// Functions and lines of frames in this program, by addr2line where it is installed. The child does the
// printing.
void print_own_frames(const std::vector<std::string>& offsets) {
  std::vector<std::string> words{"addr2line", "-Cfpi", "-e", "/proc/self/exe"};
  char exe[4096];
  const ssize_t length = ::readlink("/proc/self/exe", exe, sizeof(exe));
  if (length > 0) words[3] = std::string(exe, static_cast<size_t>(length));
  words.insert(words.end(), offsets.begin(), offsets.end());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execvp(arguments[0], arguments.data());
    std::_Exit(127);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

void print_stack() {
  std::array<void*, kMaxFrames> frames;
  const int count = ::backtrace(frames.data(), kMaxFrames);
  std::vector<std::string> own;
  std::fprintf(stderr, "stack, newest first:\n");
  for (int i = 0; i < count; ++i) {
    Dl_info info{};
    void* const frame = frames[static_cast<size_t>(i)];
    const bool known = ::dladdr(frame, &info) != 0 && info.dli_fname != nullptr;
    const size_t offset = reinterpret_cast<size_t>(frame) - reinterpret_cast<size_t>(info.dli_fbase);
    const std::string name = known && info.dli_sname != nullptr ? demangled(info.dli_sname) : "";
    const char* file = known ? info.dli_fname : "?";
    std::fprintf(stderr, "  #%-2d %s+0x%zx %s\n", i, file, offset, name.c_str());
    Dl_info self{};
    if (::dladdr(reinterpret_cast<void*>(&install_crash_report), &self) != 0 &&
        self.dli_fbase == info.dli_fbase) {
      own.push_back(fmt::format("0x{:x}", offset - 1));  // the call, not the return address
    }
  }
  if (!own.empty()) print_own_frames(own);
}

[[noreturn]] void report(const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr, "narrowgauge: bug: %s\n", what.c_str());
  print_stack();
  std::fflush(stderr);
  std::_Exit(kExitBug);
}

std::string current_exception_text() {
  if (!std::current_exception()) return "terminated without an exception";
  try {
    throw;
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", demangled(typeid(error).name()), error.what());
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

void on_terminate() { report(current_exception_text()); }

void on_signal(int number) {
  for (const int fatal : kFatalSignals) std::signal(fatal, SIG_DFL);  // a second fault ends the process
  report(fmt::format("signal {} ({})", number, ::strsignal(number)));
}

}  // namespace

void install_crash_report() {
  void* first = nullptr;
  ::backtrace(&first, 1);  // loads its library now, not in a handler
  std::set_terminate(on_terminate);
  const stack_t stack{.ss_sp = signal_stack.data(), .ss_flags = 0, .ss_size = signal_stack.size()};
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  for (const int fatal : kFatalSignals) ::sigaction(fatal, &action, nullptr);
}

}  // namespace narrowgauge::app
