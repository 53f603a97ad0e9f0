// The command line, the config command and the report of a bug.
#include "app/cli.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "app/command.h"
#include "app/crash.h"
#include "app/output.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/config/config.h"
#include "tests/base/child.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using app::Cli;
using test::in_child;

namespace {

struct Words {
  explicit Words(std::vector<std::string> list) : words(std::move(list)) {
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
  }
  [[nodiscard]] int count() const { return static_cast<int>(words.size()); }
  std::vector<std::string> words;
  std::vector<char*> pointers;
};

std::optional<app::Arguments> parse(std::vector<std::string> list) {
  Cli cli("sample", "RUN [options]", "Let a run write text.");
  cli.positional("run", "folder of the run");
  cli.positional("other", "another word", false);
  cli.option("tokens", "N", "how many", "200");
  cli.option("temperature", "T", "how bold");
  cli.option("prompt", "TEXT", "what to continue");
  cli.repeated("set", "KEY=VALUE", "override a key");
  cli.flag("json", "print JSON");
  list.insert(list.begin(), "sample");
  Words words(std::move(list));
  return cli.parse(words.count(), words.pointers.data());
}

std::string problem(const std::vector<std::string>& list) {
  try {
    parse(list);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

test::ChildResult config_command(std::vector<std::string> list) {
  list.insert(list.begin(), "config");
  return in_child([&] {
    Words words(std::move(list));
    try {
      return app::run_config(words.count(), words.pointers.data());
    } catch (const UserError& error) {
      fmt::print("{}", error.what());
      return kExitUserError;
    }
  });
}

test::ChildResult crash(const std::function<int()>& body) {
  return in_child([&] {
    app::install_crash_report();
    return body();
  });
}

}  // namespace

TEST_CASE("values, defaults, flags and repeated options") {
  const auto a =
      parse({"runs/x", "--tokens", "5", "--set", "a.b=[1,2]", "--set=c.d=e,f", "--json", "--prompt", ""});
  REQUIRE(a);
  CHECK(a->text("run") == "runs/x");
  CHECK_FALSE(a->given("other"));
  CHECK(a->integer("tokens") == 5);
  CHECK(a->list("set") == std::vector<std::string>{"a.b=[1,2]", "c.d=e,f"});
  CHECK(a->flag("json"));
  CHECK(a->given("prompt"));
  CHECK(a->text("prompt").empty());
  const auto b = parse({"--prompt", "- minus, comma", "runs/x", "word", "--temperature", "0.8"});
  REQUIRE(b);
  CHECK(b->integer("tokens") == 200);
  CHECK_FALSE(b->given("tokens"));
  CHECK_FALSE(b->flag("json"));
  CHECK(b->text("other") == "word");
  CHECK(b->text("prompt") == "- minus, comma");
  CHECK(b->number("temperature", 0, 10) == 0.8);
  CHECK(b->list("set").empty());
  CHECK_THROWS_AS(b->text("undeclared"), std::logic_error);
}

TEST_CASE("bad numbers name option, value and rule") {
  for (const char* bad : {"abc", "1.5", "", "-1", "99999999999999999999", "5 "}) {
    INFO(bad);
    CHECK_THROWS_AS(parse({"r", fmt::format("--tokens={}", bad)})->integer("tokens"), UserError);
  }
  for (const char* bad : {"abc", "nan", "inf", "-0.1", "11", "1e999", ""}) {
    INFO(bad);
    CHECK_THROWS_AS(parse({"r", fmt::format("--temperature={}", bad)})->number("temperature", 0, 10),
                    UserError);
  }
  CHECK_THROWS_WITH(parse({"r", "--tokens=0"})->integer("tokens", 1, 10),
                    "--tokens: \"0\" is not allowed: give an integer from 1 to 10");
}

TEST_CASE("what is wrong with a command line") {
  CHECK(problem({"r", "--tokns", "5"}) ==
        "sample: unknown option --tokns (did you mean \"--tokens\"?); see narrowgauge sample --help");
  CHECK(contains(problem({"r", "--zzzzzz=5"}), "unknown option --zzzzzz;"));
  CHECK(contains(problem({"r", "-x"}), "unknown option -x"));
  CHECK(problem({}) == "sample: run is missing; see narrowgauge sample --help");
  CHECK(contains(problem({"a", "b", "c"}), "unexpected word \"c\""));
  CHECK(contains(problem({"r", "--tokens"}), "tokens"));
}

TEST_CASE("help lists everything") {
  const auto result = in_child([] { return parse({"--help"}) || parse({"-h"}) ? 1 : 42; });
  CHECK(result.exit_code == 42);
  CHECK(contains(result.output, "usage: narrowgauge sample RUN [options]\n\nLet a run write text.\n"));
  CHECK(contains(result.output, "  run              folder of the run (required)\n"));
  CHECK(contains(result.output, "  --tokens N       how many (default: 200)\n"));
  CHECK(contains(result.output, "  --set KEY=VALUE  override a key (may be repeated)\n"));
}

TEST_CASE("the config command explains, checks and prints") {
  CHECK(config_command({"--explain"}).output == explain_config(false));
  CHECK(config_command({"--explain", "--markdown"}).output == explain_config(true));
  const std::string preset = NARROWGAUGE_SOURCE_DIR "/configs/quickstart.yaml";
  CHECK(config_command({preset, "--set", "train.steps=7"}).output ==
        dump_config(load_config(preset, {"train.steps=7"})));
  CHECK(config_command({preset, "--set", "train.step=7"}).exit_code == kExitUserError);
  CHECK(config_command({}).exit_code == kExitUserError);
  CHECK(config_command({preset, "--explain"}).exit_code == kExitUserError);
  CHECK(config_command({preset, "--markdown"}).exit_code == kExitUserError);
}

TEST_CASE("standard output that is closed is one line, a reader that has gone is none") {
  const auto closed = in_child([] {
    ::close(STDOUT_FILENO);
    app::hold_standard_descriptors();
    try {
      app::print("x");
    } catch (const UserError& error) {
      fmt::print(stderr, "{}", error.what());
      return ::open("/dev/null", O_RDONLY) > STDERR_FILENO ? kExitUserError : 1;
    }
    return 1;
  });
  CHECK(closed.exit_code == kExitUserError);
  CHECK(contains(closed.output, "cannot write standard output: it is closed"));
  const auto gone = in_child([] {
    ignore_file_signals();
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    app::print("x");
    return 1;
  });
  CHECK(gone.exit_code == -1);  // SIGPIPE
  CHECK(gone.output.empty());
}

TEST_CASE("a bug is reported with its stack and code 70") {
  const auto thrown = crash([]() -> int { throw std::logic_error("impossible"); });
  CHECK(thrown.exit_code == kExitBug);
  CHECK(contains(thrown.output, "narrowgauge: bug: std::logic_error: impossible\nstack, newest first:\n"));
  CHECK(contains(thrown.output, "  #5 "));
  const auto odd = crash([]() -> int { throw 5; });
  CHECK(odd.exit_code == kExitBug);
  CHECK(contains(odd.output, "no std::exception"));
  for (const int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) {
    const auto killed = crash([&] { return std::raise(number); });
    CHECK(killed.exit_code == kExitBug);
    CHECK(contains(killed.output, fmt::format("narrowgauge: bug: signal {} (", number)));
  }
}
