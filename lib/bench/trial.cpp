#include "lib/bench/trial.h"

#include <fmt/format.h>

#include <sstream>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/units.h"
#include "lib/bench/json.h"

namespace narrowgauge::bench {
namespace {

constexpr double kStartSeconds = 300;
constexpr double kPatience = 4;    // times the predicted seconds
constexpr double kUnsteady = 1.3;  // times the median step
constexpr size_t kLongestNote = 120;

// What the candidate is measured with: nothing of it changes speed or memory but the choice.
Config trial_config(const Config& config, int64_t budget, const plan::Choice& choice) {
  Config trial = plan::with_choice(config, choice);
  trial.memory.budget = budget;
  trial.train.device = "auto";
  trial.model.init_from.clear();
  return trial;
}

// What the child's log says of its failure: its last error, else its last line.
std::string last_word(const std::string& log) {
  std::string error;
  std::string last;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    for (const std::string prefix : {"narrowgauge: error: ", "narrowgauge: bug: "}) {
      if (line.starts_with(prefix)) error = line.substr(prefix.size());
    }
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  const std::string word = error.empty() ? last : error;
  return word.size() > kLongestNote ? word.substr(0, kLongestNote) + "..." : word;
}

// Of a child that did not end well.
void explain(plan::Trial& trial, const ChildEnd& end, const std::string& log, double seconds) {
  if (end.why == ChildEnd::Why::timed_out) {
    trial.outcome = plan::Outcome::too_slow;
    trial.note = fmt::format("killed after {}", format_duration(seconds));
    return;
  }
  const auto says = [&](const char* words) { return log.find(words) != std::string::npos; };
  if (says("memory is not enough") || says("out of memory")) {
    trial.outcome = plan::Outcome::out_of_memory;
    return;
  }
  trial.outcome = plan::Outcome::failed;
  trial.note = last_word(log);
  if (trial.note.empty()) {
    trial.note = fmt::format("{} {}, no output", end.why == ChildEnd::Why::signalled ? "signal" : "exit code",
                             end.code);
  }
}

// What a whole run measured.
void judge(plan::Trial& trial, const Json& step, int64_t budget, bool open) {
  const Json& rate = step.at("tokens_per_second");
  trial.tokens_per_second = rate.at("median").get<double>();
  trial.step_ms = step.at("step_ms").get<double>();
  trial.device_bytes = step.at("peak_bytes").at("device").get<int64_t>();
  const auto spilled = step.at("spilled_bytes").get<int64_t>();
  const double slow = trial.tokens_per_second / rate.at("p20").get<double>();
  if (trial.device_bytes > budget) {
    trial.outcome = plan::Outcome::over_budget;
    trial.note = fmt::format("by {}", format_bytes(trial.device_bytes - budget));
  } else if (spilled > 0) {
    trial.outcome = plan::Outcome::spilled;
    trial.note = fmt::format("{} left the card", format_bytes(spilled));
  } else if (!(slow <= kUnsteady)) {
    trial.outcome = plan::Outcome::unsteady;
    trial.note = fmt::format("a fifth of the steps took {:.1f} times the median or more", slow);
  } else {
    trial.outcome = plan::Outcome::ran;
    if (open) trial.note = step.at("deterministic").get<bool>() ? "deterministic" : "not deterministic";
  }
}

}  // namespace

double trial_limit(double predicted_step, int64_t steps) {
  return kStartSeconds + kPatience * predicted_step * static_cast<double>(steps);
}

std::optional<plan::Trial> run_trial(const Config& config, int64_t budget, const plan::Candidate& candidate,
                                     const TrialRunner& runner) {
  const std::filesystem::path yaml = runner.folder / "config.yaml", json = runner.folder / "result.json",
                              log = runner.folder / "log";
  remove_tree(json);
  atomic_write_file(yaml, dump_config(trial_config(config, budget, candidate.choice)));
  const double limit = trial_limit(candidate.seconds, runner.steps + runner.warmup);
  const ChildEnd end = runner.run(
      {runner.program, "bench", "step", yaml.string(), "--speed-only", "--steps",
       std::to_string(runner.steps), "--warmup", std::to_string(runner.warmup), "--json", json.string()},
      log, limit, runner.stop);
  if (end.why == ChildEnd::Why::stopped) return std::nullopt;
  plan::Trial trial{.choice = candidate.choice, .predicted_seconds = candidate.seconds};
  if (end.why != ChildEnd::Why::exited || end.code != kExitDone) {
    explain(trial, end, read_file(log), limit);
    return trial;
  }
  try {
    judge(trial, Json::parse(read_file(json)).at("step"), budget, config.train.deterministic == "auto");
  } catch (const std::exception& error) {
    trial = {.choice = candidate.choice, .predicted_seconds = candidate.seconds};
    trial.note = fmt::format("its result cannot be read: {}", error.what());
  }
  return trial;
}

}  // namespace narrowgauge::bench
