#include "tests/e2e/program.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace fs = std::filesystem;
namespace {

fs::path temporary_file() {
  std::string pattern = (fs::temp_directory_path() / "narrowgauge-out-XXXXXX").string();
  const int fd = ::mkstemp(pattern.data());
  REQUIRE(fd >= 0);
  ::close(fd);
  return pattern;
}

[[noreturn]] void become(const Words& arguments, uint64_t file_limit, const fs::path& out,
                         const fs::path& err) {
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT}) {
    std::signal(number, SIG_DFL);
  }
  if (std::freopen(out.c_str(), "w", stdout) == nullptr) ::_exit(126);
  if (std::freopen(err.c_str(), "w", stderr) == nullptr) ::_exit(126);
  if (file_limit > 0) {
    const rlimit limit{file_limit, file_limit};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ::setenv("OMP_NUM_THREADS", "1", 1);
  std::vector<char*> words;
  std::string program = NARROWGAUGE_PROGRAM;
  words.push_back(program.data());
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  ::_exit(127);
}

}  // namespace

Program::Program(const Words& arguments, uint64_t file_limit)
    : out_(temporary_file()), err_(temporary_file()) {
  pid_ = ::fork();
  if (pid_ == 0) become(arguments, file_limit, out_, err_);
}

Program::~Program() {
  if (pid_ > 0) {
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  fs::remove(out_, ignored);
  fs::remove(err_, ignored);
}

void Program::signal(int number) const { ::kill(pid_, number); }

Outcome Program::wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = read_text(out_),
          .err = read_text(err_)};
}

Outcome run(const Words& arguments, uint64_t file_limit) { return Program(arguments, file_limit).wait(); }

Outcome run_well(const Words& arguments) {
  Outcome outcome = run(arguments);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return outcome;
}

std::string stop_reason(const fs::path& run) { return rows(run, "stop").back().at("reason"); }

bool wait_for_step(const fs::path& run, int64_t step) {
  const std::string row = "\"event\":\"step\",\"step\":" + std::to_string(step) + ",";
  for (int i = 0; i < 3000; ++i) {
    if (read_text(run / "metrics.jsonl").find(row) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

void require_user_error(const Outcome& outcome, const Words& fragments) {
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 2);
  const std::string prefix = "narrowgauge: error: ";
  const size_t begin = outcome.err.find(prefix);
  REQUIRE(begin != std::string::npos);
  const std::string message = outcome.err.substr(begin);
  REQUIRE(std::count(message.begin(), message.end(), '\n') == 1);  // it is the last line, too
  for (const std::string& fragment : fragments) {
    INFO("missing: " << fragment);
    REQUIRE(message.find(fragment) != std::string::npos);
  }
}

}  // namespace narrowgauge::test
