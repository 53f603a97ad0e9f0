#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/train/rows.h"

// Drives the built program as a person does.
namespace narrowgauge::test {

using Words = std::vector<std::string>;

struct Outcome {
  int exit_code = -1;  // -1: killed by a signal
  std::string out;     // stdout
  std::string err;     // stderr
};

// A running program; one thread of arithmetic, so that tests can run side by side.
class Program {
 public:
  // `file_limit`: largest file it may write, in bytes; 0: any.
  explicit Program(const Words& arguments, uint64_t file_limit = 0);
  ~Program();  // kills it when nobody waited
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const;
  Outcome wait();

 private:
  pid_t pid_ = -1;
  std::filesystem::path out_;
  std::filesystem::path err_;
};

Outcome run(const Words& arguments, uint64_t file_limit = 0);
Outcome run_well(const Words& arguments);  // exit code 0 or the test fails

// Why the training run in this folder ended.
std::string stop_reason(const std::filesystem::path& run);

// Waits until metrics.jsonl has a row of this step; false after a minute.
bool wait_for_step(const std::filesystem::path& run, int64_t step);

// Exit code 2 and one line for the person, which holds every fragment.
void require_user_error(const Outcome& outcome, const Words& fragments);

}  // namespace narrowgauge::test
