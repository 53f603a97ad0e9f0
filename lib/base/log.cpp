#include "lib/base/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <mutex>
#include <string>

#include "lib/base/error.h"
#include "lib/base/file.h"

namespace narrowgauge {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";

struct LogState {
  std::mutex mutex;
  FileDescriptor file;
  std::filesystem::path path;
  std::string status;
};

// Never destroyed, so that code that runs at exit may still log.
LogState& state() {
  static auto* instance = new LogState;
  return *instance;
}

// stderr that is closed or full is nobody's fault here: nothing is thrown.
void write_stderr(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

std::string one_line(std::string_view prefix, std::string_view message) {
  std::string line(prefix);
  line += message;
  while (!line.empty() && line.back() == '\n') line.pop_back();
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  line += '\n';
  return line;
}

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:%Y-%m-%d %H:%M:%S} ", local);
}

void emit(std::string_view prefix, std::string_view message) {
  const std::string line = one_line(prefix, message);
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  write_stderr(log.status.empty() ? line : std::string(kEraseLine) + line + log.status);
  if (!log.file.is_open()) return;
  const std::string entry = timestamp() + line;
  try {
    write_all(log.file.get(), entry.data(), entry.size(), log.path);
  } catch (const UserError& error) {
    log.file.close();
    write_stderr(
        one_line("narrowgauge: warning: ", std::string("no more lines in the log file: ") + error.what()));
  }
}

size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
}

}  // namespace

void log_info(std::string_view message) { emit("", message); }
void log_warn(std::string_view message) { emit("narrowgauge: warning: ", message); }
void log_error(std::string_view message) { emit("narrowgauge: error: ", message); }

void set_log_file(const std::filesystem::path& path) {
  FileDescriptor file = open_to_append(path);
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  log.file = std::move(file);
  log.path = path;
}

void close_log_file() {
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  log.file.close();
}

bool status_is_live() { return ::isatty(STDERR_FILENO) == 1; }

void show_status(std::string_view text) {
  if (!status_is_live()) return;
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  if (text.empty() && log.status.empty()) return;
  log.status = text.substr(0, terminal_width());
  write_stderr(std::string(kEraseLine) + log.status);
}

}  // namespace narrowgauge
