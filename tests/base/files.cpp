// Files, metrics, log and run lock, with what can go wrong.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/jsonl.h"
#include "lib/base/log.h"
#include "lib/base/run_lock.h"
#include "lib/base/scratch_folder.h"
#include "tests/base/child.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using test::in_child;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

void put(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// The message of the UserError that `body` throws, or "" when it throws none.
template <typename Body>
std::string user_error(const Body& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

size_t entries(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// Runs `body` where no file may grow beyond 64 KiB; its UserError, with the exit code in front.
template <typename Body>
std::string on_full_disk(const Body& body) {
  const auto result = in_child([&] {
    ignore_file_signals();
    test::limit_file_size(65536);
    const std::string message = user_error(body);
    fmt::print("{}", message);
    return message.empty() ? 0 : 2;
  });
  return fmt::format("{}: {}", result.exit_code, result.output);
}

}  // namespace

TEST_CASE("files are read whole") {
  const TemporaryFolder folder;
  std::string bytes(100001, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  put(folder / "a", bytes);
  put(folder / "empty", "");
  CHECK(read_file(folder / "a") == bytes);
  CHECK(read_file(folder / "empty").empty());
  CHECK(contains(read_file("/proc/self/status"), "Name:"));  // says it has 0 bytes
}

TEST_CASE("what cannot be opened is named with a remedy") {
  const TemporaryFolder folder;
  const std::string missing = user_error([&] { read_file(folder / "missing"); });
  CHECK(missing == fmt::format("cannot read {}: No such file or directory (check the path)",
                               (folder / "missing").string()));
  CHECK(contains(user_error([&] { read_file(folder.path()); }), "Is a directory"));
  put(folder / "file", "x");
  CHECK(contains(user_error([&] { open_to_write(folder / "file/below"); }), "a part of the path is a file"));
  CHECK(contains(user_error([&] { open_to_append(folder / "no/such/folder"); }), "No such file"));
  CHECK(contains(user_error([&] { make_folder(folder / "file"); }), "cannot create the folder"));
  CHECK(contains(user_error([&] { read_file(folder / std::string(300, 'n')); }), "choose a shorter name"));
  CHECK_THROWS_AS(throw_io_error("read", "x", EFAULT), std::system_error);  // a bug, not the user's
  CHECK(contains(user_error([&] { throw_io_error("write", "x", ENOSPC); }), "free some space"));
  CHECK(contains(user_error([&] { throw_io_error("write", "x", EDQUOT); }), "quota"));
  CHECK(contains(user_error([&] { throw_io_error("write", "x", EROFS); }), "writable file system"));
  CHECK(contains(user_error([&] { throw_io_error("write", "x", EIO); }), "dmesg"));
}

TEST_CASE("an unwritable folder is named") {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const auto result = in_child([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 1;  // root may write everywhere
    const std::string message = user_error([&] { atomic_write_file(folder / "a", "x"); });
    return contains(message, "check the owner and the permissions") ? 42 : 1;
  });
  CHECK(result.exit_code == 42);
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST_CASE("an atomic write replaces whole files") {
  const TemporaryFolder folder;
  atomic_write_file(folder / "a", "first");
  atomic_write_file(folder / "a", "second");
  CHECK(read_file(folder / "a") == "second");
  CHECK(entries(folder.path()) == 1);
  fs::create_directory(folder / "in the way");
  CHECK_THROWS_AS(atomic_write_file(folder / "in the way", "x"), UserError);
  CHECK(entries(folder.path()) == 2);  // no temporary file is left
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  atomic_write_file("relative", "x");
  fs::current_path(before);
  CHECK(read_file(folder / "relative") == "x");
}

TEST_CASE("a full disk leaves the old file and no temporary one") {
  const TemporaryFolder folder;
  atomic_write_file(folder / "a", "old");
  const std::string message =
      on_full_disk([&] { atomic_write_file(folder / "a", std::string(100000, 'x')); });
  CHECK(message ==
        fmt::format("2: cannot write {}: File too large (the file size limit is reached: raise it with "
                    "ulimit -f, or use another file system)",
                    (folder / "a").string()));
  CHECK(read_file(folder / "a") == "old");
  CHECK(entries(folder.path()) == 1);
}

TEST_CASE("/dev/full is a full disk") {
  const FileDescriptor full = open_to_append("/dev/full");
  CHECK(contains(user_error([&] { write_all(full.get(), "x", 1, "/dev/full"); }), "free some space"));
}

TEST_CASE("standard output that cannot be written is the user's error") {
  const auto result = in_child([] {
    write_stdout("through ");
    fmt::print("it\n");
    std::fflush(stdout);
    if (std::freopen("/dev/full", "w", stdout) == nullptr) return 1;
    return contains(user_error([] { write_stdout("x"); }), "cannot write standard output: No space left") ? 42
                                                                                                          : 1;
  });
  CHECK(result.exit_code == 42);
  CHECK(result.output == "through it\n");
}

TEST_CASE("a closed pipe is an error, not a signal") {
  const auto result = in_child([] {
    ignore_file_signals();
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    ::close(ends[0]);
    return contains(user_error([&] { write_all(ends[1], "x", 1, "pipe"); }), "reader") ? 42 : 1;
  });
  CHECK(result.exit_code == 42);
}

TEST_CASE("descriptors are owned once") {
  FileDescriptor a = open_to_read("/dev/null");
  const int fd = a.get();
  FileDescriptor b = std::move(a);
  CHECK(b.get() == fd);
  CHECK_FALSE(a.is_open());  // NOLINT: the moved-from state is part of the contract
  b = open_to_read("/dev/null");
  CHECK(b.get() != fd);
  CHECK(::fcntl(fd, F_GETFD) == -1);
  CHECK((::fcntl(b.get(), F_GETFD) & FD_CLOEXEC) != 0);
  b.close();
  CHECK_FALSE(b.is_open());
}

TEST_CASE("trees are removed without following links") {
  const TemporaryFolder folder;
  fs::create_directories(folder / "outside");
  put(folder / "outside/kept", "x");
  make_folder(folder / "tree/deep/er");
  fs::create_directory_symlink(folder / "outside", folder / "tree/link");
  remove_tree(folder / "tree");
  remove_tree(folder / "tree");  // fine when missing
  CHECK_FALSE(fs::exists(folder / "tree"));
  CHECK(fs::exists(folder / "outside/kept"));
}

TEST_CASE("a scratch folder goes with all it holds") {
  fs::path path;
  {
    const ScratchFolder scratch;
    path = scratch.path();
    CHECK(entries(path) == 0);
    put(path / "file", "x");
  }
  CHECK_FALSE(path.empty());
  CHECK_FALSE(fs::exists(path));
  const auto result = in_child([] {
    ::setenv("TMPDIR", "/not/there", 1);
    const std::string message = user_error([] { const ScratchFolder scratch; });
    return contains(message, "TMPDIR") ? 2 : 0;
  });
  CHECK(result.exit_code == 2);
}

TEST_CASE("free space and the kind of file system") {
  const TemporaryFolder folder;
  CHECK(free_bytes(folder.path()) > 0);
  CHECK(free_bytes(folder / "not/yet/there") == free_bytes(folder.path()));
  CHECK_FALSE(is_network_file_system("/proc"));
  CHECK_FALSE(is_network_file_system("/dev/shm/not-there"));
  fsync_path(folder.path());
  CHECK_THROWS_AS(fsync_path(folder / "missing"), UserError);
}

TEST_CASE("metrics are valid JSON lines") {
  const TemporaryFolder folder;
  {
    JsonLines lines(folder / "metrics.jsonl");
    lines.write(nlohmann::json{{"step", 1}, {"loss", std::numeric_limits<double>::quiet_NaN()}});
    CHECK(read_file(folder / "metrics.jsonl") == "{\"loss\":null,\"step\":1}\n");  // at once, not at the end
    lines.write(nlohmann::ordered_json{{"step", 2}, {"loss", std::numeric_limits<double>::infinity()}});
    lines.write(nlohmann::json{{"text", "line\nbreak \xff"}});
  }
  CHECK(read_file(folder / "metrics.jsonl") ==
        "{\"loss\":null,\"step\":1}\n{\"step\":2,\"loss\":null}\n{\"text\":\"line\\nbreak \xef\xbf\xbd\"}\n");
}

TEST_CASE("metrics go on after a crash and from an earlier step") {
  const TemporaryFolder folder;
  const fs::path path = folder / "metrics.jsonl";
  const std::string good = "{\"event\":\"start\"}\n{\"step\":1}\n{\"step\":2}\n";
  put(path, good + "{\"step\":3}\n{\"st");
  { const JsonLines torn(path); }
  CHECK(read_file(path) == good + "{\"step\":3}\n");
  JsonLines lines(path, 2);
  CHECK(read_file(path) == good);
  lines.write(nlohmann::json{{"step", 3}});
  CHECK(read_file(path) == good + "{\"step\":3}\n");
  put(path, std::string("\0\0\0\n[1]\nrubbish\n", 16) + good);
  { const JsonLines cleaned(path, 1); }
  CHECK(read_file(path) == "{\"event\":\"start\"}\n{\"step\":1}\n");
  CHECK_THROWS_AS(JsonLines(folder / "no/folder"), UserError);
}

TEST_CASE("metrics on a full disk are the user's error") {
  const TemporaryFolder folder;
  const std::string message = on_full_disk([&] {
    JsonLines lines(folder / "metrics.jsonl");
    while (true) lines.write(nlohmann::json{{"text", std::string(1000, 'x')}});
  });
  CHECK(contains(message, "2: cannot write"));
  CHECK(contains(message, "metrics.jsonl"));
}

TEST_CASE("one run folder, one program") {
  const TemporaryFolder folder;
  {
    const RunLock lock(folder.path());
    const std::string message = user_error([&] { RunLock second(folder.path()); });
    CHECK(contains(message, fmt::format("process {}", ::getpid())));
    const auto result = in_child([&] {
      return contains(user_error([&] { RunLock other(folder.path()); }), "is in use by another") ? 42 : 1;
    });
    CHECK(result.exit_code == 42);
  }
  const RunLock again(folder.path());
  CHECK_THROWS_AS(RunLock(folder / "missing"), UserError);
}

TEST_CASE("a killed program's lock is free") {
  const TemporaryFolder folder;
  const auto result = in_child([&] {
    const RunLock lock(folder.path());
    return std::raise(SIGKILL);
  });
  CHECK(result.exit_code == -1);
  CHECK(user_error([&] { RunLock lock(folder.path()); }).empty());
}

TEST_CASE("log lines are whole, one an event, and copied to the run's file") {
  const TemporaryFolder folder;
  const auto result = in_child([&] {
    set_log_file(folder / "log");
    log_info("hello\nworld\n");
    log_warn("careful");
    log_error("bad");
    show_status("not on a terminal");
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([] {
        for (int j = 0; j < 100; ++j) log_info(std::string(200, 'x'));
      });
    }
    for (std::thread& thread : threads) thread.join();
    close_log_file();
    log_info("later");
    return 0;
  });
  std::string expected = "hello world\nnarrowgauge: warning: careful\nnarrowgauge: error: bad\n";
  for (int i = 0; i < 800; ++i) expected += std::string(200, 'x') + '\n';
  CHECK(result.output == expected + "later\n");
  const std::string log = read_file(folder / "log");
  CHECK(contains(log, " hello world\n"));
  CHECK_FALSE(contains(log, "later"));
  CHECK(log.size() == expected.size() + 803 * std::string("2026-01-01 00:00:00 ").size());
  CHECK_THROWS_AS(set_log_file(folder / "no/folder"), UserError);
}

TEST_CASE("a log file that fails ends the copy, not the program") {
  const TemporaryFolder folder;
  const auto result = in_child([&] {
    ignore_file_signals();
    test::limit_file_size(1000);
    set_log_file(folder / "log");
    for (int i = 0; i < 10; ++i) log_info(std::string(300, 'x'));
    return 0;
  });
  CHECK(result.exit_code == 0);
  CHECK(contains(result.output, "narrowgauge: warning: no more lines in the log file"));
  CHECK(result.output.find("no more lines") == result.output.rfind("no more lines"));
}
