// The loop of tune, with children that only pretend to run.
#include "lib/bench/tune.h"

#include <csignal>
#include <map>

#include "lib/base/cache_file.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/bench/json.h"
#include "lib/train/signals.h"
#include "tests/base/child.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"

namespace narrowgauge::bench {
namespace {

using plan::Outcome;
using test::TemporaryFolder;

constexpr int64_t kBudget = int64_t{29} << 29;

// What a child leaves behind.
struct Script {
  ChildEnd end{};
  std::string log = "bench: done\n";
  double median = 10000;
  double p20 = 9900;
  int64_t device = int64_t{13} << 30;
  int64_t spilled = 0;
  std::string result{};  // instead of the above
};

Script exits(int code, const std::string& log) { return {.end = {.code = code}, .log = log}; }

class Tuner {
 public:
  explicit Tuner(size_t candidates = 4) {
    config_.train.deterministic = "false";
    config_.model.init_from = "elsewhere";
    request_.plan = {.config = config_,
                     .surroundings = {},
                     .budget = kBudget,
                     .loss_chunks = {},
                     .candidates = candidates};
    request_.plan.surroundings.limits = plan::named_card("5080").limits();
    request_.key = {.card = {.uuid = "aa", .driver = "13.0", .version = "1"},
                    .budget = kBudget,
                    .config = plan::tuned_config(config_)};
    request_.cache = folder_ / "cache/tuned.json";
    runner_.program = "/the/program";
    runner_.folder = folder_.path();
    runner_.stop = [this] { return calls >= stop_after; };
    runner_.run = [this](const std::vector<std::string>& words, const std::filesystem::path& log,
                         double seconds,
                         const std::function<bool()>& stop) { return child(words, log, seconds, stop); };
  }

  Tuning run() { return tune(request_, rates_, runner_); }
  TuneRequest& request() { return request_; }
  [[nodiscard]] std::string cached() const { return read_cache_file(request_.cache); }

  std::map<int, Script> scripts;  // by the number of the call; else all goes well
  int stop_after = 1000;          // calls
  int calls = 0;
  std::vector<Config> configs;  // what the children were given
  double limit = 0;             // of the last one

 private:
  ChildEnd child(const std::vector<std::string>& words, const std::filesystem::path& log, double seconds,
                 const std::function<bool()>& stop) {
    REQUIRE(words.size() == 11);
    CHECK(words[0] == "/the/program");
    CHECK(words[1] + " " + words[2] + " " + words[4] == "bench step --speed-only");
    CHECK(words[5] + words[6] + words[7] + words[8] == "--steps8--warmup3");
    configs.push_back(load_config(words[3], {}));
    limit = seconds;
    const Script script = scripts.contains(calls) ? scripts[calls] : Script{.median = 10000.0 + calls};
    ++calls;
    atomic_write_file(log, script.log);
    CHECK_FALSE(std::filesystem::exists(words[10]));
    if (stop()) return {.why = ChildEnd::Why::stopped};
    const Json step{{"tokens_per_second", {{"median", script.median}, {"p20", script.p20}, {"p80", 1}}},
                    {"step_ms", 6500.5},
                    {"peak_bytes", {{"device", script.device}}},
                    {"deterministic", false},
                    {"spilled_bytes", script.spilled}};
    if (script.end.why == ChildEnd::Why::exited && script.end.code == 0) {
      atomic_write_file(words[10], script.result.empty() ? Json{{"step", step}}.dump() : script.result);
    }
    return script.end;
  }

  TemporaryFolder folder_;
  Config config_;
  plan::Rates rates_{plan::named_card("5080"), false};
  TuneRequest request_;
  TrialRunner runner_;
};

TEST_CASE("every choice runs as it is, and the fastest is chosen") {
  Tuner tuner;
  tuner.scripts[1] = {.median = 20000, .p20 = 19000};
  const Tuning tuning = tuner.run();
  CHECK_FALSE(tuning.interrupted);
  REQUIRE(tuning.trials.size() == 4);
  REQUIRE(tuner.configs.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    const plan::Trial& trial = tuning.trials[i];
    CHECK(trial.outcome == Outcome::ran);
    CHECK(trial.note.empty());
    CHECK(trial.step_ms == 6500.5);
    CHECK(trial.device_bytes == int64_t{13} << 30);
    CHECK(tuner.configs[i].train.micro_batch == trial.choice.micro_batch);
    CHECK(plan::fixed_levels(tuner.configs[i]) == trial.choice.levels);
    CHECK(tuner.configs[i].memory.budget == kBudget);
    CHECK(tuner.configs[i].model.init_from.empty());
  }
  CHECK(tuner.limit == trial_limit(tuning.trials[3].predicted_seconds, 11));
  CHECK(tuner.limit > 11 * 4 * tuning.trials[3].predicted_seconds + 60);
  CHECK(chosen(tuning, tuner.request()).choice == tuning.trials[1].choice);
  CHECK(plan::tuned_choice(tuner.cached(), tuner.request().key) == tuning.trials[1].choice);
  CHECK(plan::find_trials(tuner.cached(), tuner.request().key) == tuning.trials);

  const Table table = tuning_table(tuning, tuner.request());
  REQUIRE(table.rows.size() == 4);
  CHECK(table.rows[0][3] == "20000");
  CHECK(table.rows[0][5] == "13.00 GiB");
  CHECK(choice_text(tuning.trials[0].choice).find("micro-batch") == 0);
}

TEST_CASE("what a child that is no good is called") {
  Tuner tuner(9);
  using Why = ChildEnd::Why;
  tuner.scripts[0] = exits(2, "narrowgauge: error: the device's memory is not enough: 2 GiB; lower it\n");
  tuner.scripts[1] = {.end = {.why = Why::timed_out}};
  tuner.scripts[2] = exits(70, "step\nnarrowgauge: bug: no luck\nstack, newest first:\n  #0 main\n\n");
  tuner.scripts[3] = {.median = 30000, .p20 = 29000, .spilled = 1 << 20};
  tuner.scripts[4] = {.median = 30000, .p20 = 29000, .device = kBudget + 1};
  tuner.scripts[5] = {.median = 30000, .p20 = 20000};
  tuner.scripts[6] = {.end = {.why = Why::signalled, .code = SIGKILL}, .log = ""};
  tuner.scripts[7] = {.result = "{\"step\": 1}"};
  tuner.scripts[8] = exits(70, "narrowgauge: bug: CUDA error: out of memory\n  #0 main\n");
  const Tuning tuning = tuner.run();
  REQUIRE(tuning.trials.size() == 9);
  const std::vector<Outcome> expected{Outcome::out_of_memory, Outcome::too_slow,    Outcome::failed,
                                      Outcome::spilled,       Outcome::over_budget, Outcome::unsteady,
                                      Outcome::failed,        Outcome::failed,      Outcome::out_of_memory};
  for (size_t i = 0; i < 9; ++i) {
    INFO(i << ": " << tuning.trials[i].note);
    CHECK(tuning.trials[i].outcome == expected[i]);
  }
  CHECK(tuning.trials[2].note == "no luck");
  CHECK(tuning.trials[6].note == "signal 9, no output");
  CHECK(tuning.trials[7].note.find("cannot be read") != std::string::npos);
  CHECK_FALSE(plan::tuned_choice(tuner.cached(), tuner.request().key));
  CHECK(tuning_table(tuning, tuner.request()).rows[0][6] == "out of memory");
  try {
    chosen(tuning, tuner.request());
    FAIL("nothing ran");
  } catch (const UserError& error) {
    const std::string text = error.what();
    for (const char* part : {"14.5 GiB", "2 out of memory", "1 too slow", "1 unsteady", "1 spilled",
                             "3 failed with: no luck", "--reserve", "--fresh"}) {
      INFO(part);
      CHECK(text.find(part) != std::string::npos);
    }
  }

  // The next time only those run again that failed.
  tuner.scripts.clear();
  const Tuning again = tuner.run();
  CHECK(tuner.calls == 12);
  CHECK(again.trials.size() == 9);
  CHECK(chosen(again, tuner.request()).tokens_per_second == 10011);
}

TEST_CASE("a stop keeps what was measured, and the next run goes on from there") {
  Tuner tuner;
  tuner.stop_after = 3;  // while the third runs
  const Tuning stopped = tuner.run();
  CHECK(stopped.interrupted);
  REQUIRE(stopped.trials.size() == 2);
  CHECK(plan::find_trials(tuner.cached(), tuner.request().key) == stopped.trials);
  CHECK(tuner.run().interrupted);  // nothing starts after a stop
  CHECK(tuner.calls == 3);

  tuner.stop_after = 1000;
  const Tuning rest = tuner.run();
  CHECK_FALSE(rest.interrupted);
  REQUIRE(rest.trials.size() == 4);
  CHECK(tuner.calls == 5);
  CHECK(rest.trials[0] == stopped.trials[0]);
  CHECK(tuner.run().trials == rest.trials);
  CHECK(tuner.calls == 5);

  tuner.request().fresh = true;
  tuner.stop_after = 5;
  CHECK(tuner.run().trials.empty());
  CHECK(plan::find_trials(tuner.cached(), tuner.request().key).empty());
}

TEST_CASE("a cache that is damaged, or nowhere, is none") {
  Tuner tuner(2);
  std::filesystem::create_directories(tuner.request().cache.parent_path());
  atomic_write_file(tuner.request().cache, "{\"format\": 1, \"tun");
  CHECK(tuner.run().trials.size() == 2);
  CHECK(plan::find_trials(tuner.cached(), tuner.request().key).size() == 2);
  tuner.request().cache.clear();
  CHECK(tuner.run().trials.size() == 2);
  CHECK(tuner.calls == 4);
}

TEST_CASE("where determinism is open, a trial says what it was") {
  Tuner tuner(2);
  tuner.request().plan.config.train.deterministic = "auto";
  for (const plan::Trial& trial : tuner.run().trials) CHECK(trial.note == "not deterministic");
}

TEST_CASE("nothing fits") {
  Tuner tuner;
  tuner.request().plan.budget = int64_t{2} << 30;
  CHECK_THROWS_AS(tuner.run(), UserError);
  CHECK(tuner.calls == 0);
}

// Writes a good result.
const std::string kWrite = R"(
    echo '{"step": {"tokens_per_second": {"median": 5, "p20": 4}, "step_ms": 1, "peak_bytes": {"device": 7},
                    "spilled_bytes": 0}}' > "$result")";

// A program that does what `commands` say; $result is the file that it should write.
std::string script(const TemporaryFolder& folder, const std::string& commands) {
  const auto path = folder / "script";
  atomic_write_file(path, "#!/bin/sh\nfor result; do :; done\n" + commands + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path.string();
}

TEST_CASE("Ctrl-C leaves no process, and keeps what was measured") {
  const TemporaryFolder folder;
  const std::string here = folder.path().string();
  // The second child sends the signal and would sleep on.
  const std::string program =
      script(folder, "if [ -e " + here + "/first ]; then echo $$ > " + here +
                         "/pid; kill -INT $PPID; exec sleep 300; fi; touch " + here + "/first" + kWrite);
  Config config;
  config.train.deterministic = "true";
  TuneRequest request{
      .plan = {.config = config, .surroundings = {}, .budget = kBudget, .loss_chunks = {}, .candidates = 3},
      .key = {.card = {}, .budget = kBudget, .config = "c"},
      .cache = folder / "tuned.json"};
  request.plan.surroundings.limits = plan::named_card("5080").limits();
  const auto result = test::in_child([&] {
    const train::StopSignals signals(0);
    const Tuning tuning =
        tune(request, plan::Rates(plan::named_card("5080"), false),
             {.program = program, .folder = folder.path(), .stop = [&] { return signals.requested(); }});
    return tuning.interrupted && signals.name() == std::string("SIGINT") ? 0 : 1;
  });
  INFO(result.output);
  CHECK(result.exit_code == 0);
  CHECK(plan::find_trials(read_file(request.cache), request.key).size() == 1);
  CHECK(::kill(std::stoi(read_file(folder / "pid")), 0) != 0);
}

TEST_CASE("a real child") {
  const TemporaryFolder folder;
  const plan::Candidate candidate{
      .choice = {.micro_batch = 1, .levels = {RecomputeLevel::none}, .loss_chunk = 64},
      .bytes = 0,
      .seconds = 1};
  bool stop = false;
  TrialRunner runner{
      .program = script(folder, kWrite), .folder = folder.path(), .stop = [&] { return stop; }};
  Config config;
  config.train.deterministic = "true";
  const auto ran = run_trial(config, kBudget, candidate, runner);
  REQUIRE(ran);
  CHECK(ran->outcome == Outcome::ran);
  CHECK(ran->tokens_per_second == 5);

  runner.program = script(folder, "echo \"$@\"");  // and what the run before has written is gone
  const auto failed = run_trial(config, kBudget, candidate, runner);
  REQUIRE(failed);
  CHECK(failed->outcome == Outcome::failed);
  CHECK(read_file(folder / "log").starts_with("bench step "));

  runner.program = script(folder, "sleep 300");
  stop = true;
  CHECK_FALSE(run_trial(config, kBudget, candidate, runner));
  runner.program = "/no/such/program";
  CHECK_THROWS_AS(run_trial(config, kBudget, candidate, runner), UserError);
}

}  // namespace
}  // namespace narrowgauge::bench
