// A program that is run, timed out, stopped, and does not outlive its parent.
#include "lib/base/child_process.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/base/child.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace {

const auto kNever = [] { return false; };

ChildEnd shell(const std::string& script, const std::filesystem::path& log, double seconds = 60,
               const std::function<bool()>& stop = kNever) {
  return run_child({"/bin/sh", "-c", script}, log, seconds, stop);
}

// Waits for the end of a process; it may stay as a zombie that nobody reaps.
bool ends(const std::filesystem::path& pid_file) {
  const std::filesystem::path stat = "/proc/" + std::to_string(std::stoi(read_file(pid_file))) + "/stat";
  for (int i = 0; i < 100; ++i) {
    if (!std::filesystem::exists(stat) || read_file(stat).find(") Z") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

TEST_CASE("exit codes and output of a child") {
  const TemporaryFolder folder;
  const ChildEnd end = shell("echo out; echo err >&2; cat; exit 3", folder / "log");
  CHECK(end.why == ChildEnd::Why::exited);
  CHECK(end.code == 3);
  CHECK(read_file(folder / "log") == "out\nerr\n");
  const ChildEnd killed = shell("kill -9 $$", folder / "log");
  CHECK(killed.why == ChildEnd::Why::signalled);
  CHECK(killed.code == SIGKILL);
}

TEST_CASE("what cannot be started or logged is a user error") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(run_child({"/no/such/program"}, folder / "log", 1, kNever), UserError);
  CHECK_THROWS_AS(shell("true", folder / "missing" / "log"), UserError);
}

TEST_CASE("a child and its own children end at the limit and at a stop") {
  const TemporaryFolder folder;
  const std::string script = "sleep 300 & echo $! > " + (folder / "pid").string() + "; wait";
  const ChildEnd late = shell(script, folder / "log", 0.5);
  CHECK(late.why == ChildEnd::Why::timed_out);
  CHECK(ends(folder / "pid"));
  const auto begin = std::chrono::steady_clock::now();
  const auto deaf = folder / "deaf";
  const ChildEnd stopped = shell("trap '' TERM; touch " + deaf.string() + "; sleep 300; sleep 300",
                                 folder / "log", 60, [&] { return std::filesystem::exists(deaf); });
  CHECK(stopped.why == ChildEnd::Why::stopped);
  CHECK(stopped.code == SIGKILL);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("a child dies with its parent") {
  const TemporaryFolder folder;
  const auto pid_file = folder / "pid";
  in_child([&] {
    std::thread([&] {
      while (!std::filesystem::exists(pid_file)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ::kill(::getpid(), SIGKILL);
    }).detach();
    shell("echo $$ > " + pid_file.string() + ".new; mv " + pid_file.string() + ".new " + pid_file.string() +
              "; exec sleep 300",
          folder / "log");
    return 0;
  });
  CHECK(ends(pid_file));
}

}  // namespace
}  // namespace narrowgauge::test
