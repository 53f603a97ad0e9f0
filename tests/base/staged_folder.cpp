#include "lib/base/staged_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <set>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

void publish(const fs::path& target, const char* file) {
  StagedFolder staged(target);
  atomic_write_file(staged.path() / file, file);
  staged.publish();
}

}  // namespace

TEST_CASE("a staged folder takes its name whole, whatever was there") {
  const TemporaryFolder folder;
  publish(folder / "a/b/", "new");  // parents are made, a trailing slash is fine
  CHECK(names_in(folder / "a") == std::set<std::string>{"b"});
  CHECK(names_in(folder / "a/b") == std::set<std::string>{"new"});
  publish(folder / "a/b", "newer");
  CHECK(names_in(folder / "a") == std::set<std::string>{"b"});
  CHECK(names_in(folder / "a/b") == std::set<std::string>{"newer"});
  fs::create_directory(folder / "empty");
  publish(folder / "empty", "new");
  CHECK(names_in(folder / "empty") == std::set<std::string>{"new"});
}

TEST_CASE("a link to a folder stays, the folder is replaced") {
  const TemporaryFolder folder;
  publish(folder / "real", "old");
  fs::create_directory_symlink("real", folder / "link");
  publish(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(names_in(folder / "real") == std::set<std::string>{"new"});
  CHECK(names_in(folder.path()) == std::set<std::string>{"link", "real"});
}

TEST_CASE("what is not published goes, and what its dead predecessor left") {
  const TemporaryFolder folder;
  publish(folder / "x", "old");
  const fs::path left = folder / fmt::format("{}x-{}", kStagedPrefix, ::getpid());
  fs::create_directory(left);
  atomic_write_file(left / "left", "");
  {
    const StagedFolder staged(folder / "x");
    CHECK(staged.path() == left);
    CHECK(staged.target() == folder / "x");
    CHECK(names_in(left).empty());
  }
  CHECK(names_in(folder.path()) == std::set<std::string>{"x"});
  CHECK(names_in(folder / "x") == std::set<std::string>{"old"});
}

TEST_CASE("a target that cannot be written is the user's error and stays as it was") {
  const TemporaryFolder folder;
  atomic_write_file(folder / "file", "1");
  CHECK_THROWS_AS(StagedFolder(""), UserError);
  CHECK_THROWS_AS(StagedFolder(folder / "file/x"), UserError);
  CHECK_THROWS_AS(publish(folder / "file", "new"), UserError);
  CHECK(read_file(folder / "file") == "1");
  CHECK(names_in(folder.path()) == std::set<std::string>{"file"});
}
