#include "lib/bench/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lib/base/cache_file.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/plan/advice.h"
#include "lib/plan/trials.h"

namespace narrowgauge::bench {
namespace {

std::string gibibytes(int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string remark(const plan::Trial& trial) {
  if (trial.outcome == plan::Outcome::ran) return trial.note;
  return plan::outcome_name(trial.outcome) + (trial.note.empty() ? "" : ": " + trial.note);
}

double predicted_rate(const plan::Trial& trial, const Config& config) {
  return static_cast<double>(config.train.tokens_per_step) / trial.predicted_seconds;
}

void report(const plan::Trial& trial, const Config& config, const std::string& which) {
  std::string result = remark(trial);
  if (trial.tokens_per_second > 0) {
    result = fmt::format("{:.0f} tokens/s ({:.0f} predicted), {}{}", trial.tokens_per_second,
                         predicted_rate(trial, config), gibibytes(trial.device_bytes),
                         result.empty() ? "" : ", " + result);
  }
  log_info(fmt::format("{}, {}: {}", which, choice_text(trial.choice), result));
}

bool has(const std::vector<plan::Trial>& trials, const plan::Choice& choice) {
  return std::any_of(trials.begin(), trials.end(),
                     [&](const plan::Trial& trial) { return trial.choice == choice; });
}

}  // namespace

std::string choice_text(const plan::Choice& choice) {
  return fmt::format("micro-batch {}, recompute {}, loss chunk {}", choice.micro_batch,
                     plan::levels_text(choice.levels), choice.loss_chunk);
}

Tuning tune(const TuneRequest& request, const plan::Rates& rates, const TrialRunner& runner) {
  const Config& config = request.plan.config;
  const std::vector<plan::Candidate> candidates = plan::pick_trials(request.plan, rates);
  if (candidates.empty()) throw UserError(plan::shortfall(request.plan, rates));
  Tuning tuning;
  const auto keep = [&] {
    write_cache_file(request.cache,
                     plan::store_trials(read_cache_file(request.cache), request.key, tuning.trials));
  };
  if (request.fresh) {
    keep();
  } else {
    tuning.trials = plan::find_trials(read_cache_file(request.cache), request.key);
    std::erase_if(tuning.trials,
                  [](const plan::Trial& trial) { return trial.outcome == plan::Outcome::failed; });
  }
  for (size_t i = 0; i < candidates.size() && !tuning.interrupted; ++i) {
    const plan::Choice& choice = candidates[i].choice;
    const std::string which = fmt::format("choice {} of {}", i + 1, candidates.size());
    if (has(tuning.trials, choice)) {
      log_info(fmt::format("{}, {}: measured before", which, choice_text(choice)));
      continue;
    }
    show_status(fmt::format("{}, {}: running", which, choice_text(choice)));
    const std::optional<plan::Trial> trial =
        runner.stop() ? std::nullopt : run_trial(config, request.plan.budget, candidates[i], runner);
    show_status("");
    tuning.interrupted = !trial;
    if (!trial) break;
    tuning.trials.push_back(*trial);
    keep();
    report(*trial, config, which);
  }
  return tuning;
}

Table tuning_table(const Tuning& tuning, const TuneRequest& request) {
  std::vector<plan::Trial> trials = tuning.trials;
  std::stable_sort(trials.begin(), trials.end(), [](const plan::Trial& a, const plan::Trial& b) {
    const auto rate = [](const plan::Trial& trial) {
      return trial.outcome == plan::Outcome::ran ? trial.tokens_per_second : 0;
    };
    return rate(a) > rate(b);
  });
  Table table{
      .title = fmt::format("Real runs within {}", gibibytes(request.plan.budget)),
      .columns = {"recompute", "micro-batch", "loss chunk", "tokens/s", "predicted", "device", "remark"}};
  for (const plan::Trial& trial : trials) {
    const bool measured = trial.tokens_per_second > 0;
    table.rows.push_back({plan::levels_text(trial.choice.levels), std::to_string(trial.choice.micro_batch),
                          std::to_string(trial.choice.loss_chunk),
                          measured ? fmt::format("{:.0f}", trial.tokens_per_second) : "-",
                          fmt::format("{:.0f}", predicted_rate(trial, request.plan.config)),
                          measured ? gibibytes(trial.device_bytes) : "-", remark(trial)});
  }
  return table;
}

const plan::Trial& chosen(const Tuning& tuning, const TuneRequest& request) {
  if (const plan::Trial* best = plan::fastest(tuning.trials, request.plan.budget)) return *best;
  std::array<int64_t, plan::kOutcomes> counts{};
  std::string failure;
  for (const plan::Trial& trial : tuning.trials) {
    ++counts[static_cast<size_t>(trial.outcome)];
    if (trial.outcome == plan::Outcome::failed && failure.empty()) failure = " with: " + trial.note;
  }
  std::vector<std::string> ends;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto outcome = static_cast<plan::Outcome>(i);
    const std::string why = outcome == plan::Outcome::failed ? failure : "";
    if (counts[i] > 0) ends.push_back(fmt::format("{} {}{}", counts[i], plan::outcome_name(outcome), why));
  }
  throw UserError(
      fmt::format("tune: no choice ran well within {} ({}); close other programs that use the card or raise "
                  "--reserve, and measure again with --fresh",
                  format_bytes(request.plan.budget), join(ends)));
}

}  // namespace narrowgauge::bench
