#include "lib/plan/tuned.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace narrowgauge::plan {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr int64_t kNearBudget = 16;  // a difference of one part in so many

constexpr std::array<const char*, kOutcomes> kOutcomeNames{
    "ran", "unsteady", "spilled", "over the budget", "out of memory", "too slow", "failed"};

json parse(const std::string& text) {
  json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || root.value("format", json()) != kFormat || !root.contains("tuned") ||
      !root["tuned"].is_array()) {
    return {{"format", kFormat}, {"tuned", json::array()}};
  }
  return root;
}

// All but the budget.
bool is_like(const json& set, const TunedKey& key) {
  return set.is_object() && set.value("uuid", json()) == key.card.uuid &&
         set.value("driver", json()) == key.card.driver && set.value("version", json()) == key.card.version &&
         set.value("config", json()) == key.config && set.value("budget", json()).is_number_integer() &&
         set.value("trials", json()).is_array();
}

bool is_of(const json& set, const TunedKey& key) { return is_like(set, key) && set["budget"] == key.budget; }

std::optional<size_t> position(const std::string& name, const auto& names) {
  const auto at = std::find_if(names.begin(), names.end(), [&](const auto& one) { return name == one; });
  if (at == names.end()) return std::nullopt;
  return static_cast<size_t>(at - names.begin());
}

std::optional<Trial> read_trial(const json& row) {
  std::array<const char*, kLevelCount> level_names{};
  for (size_t i = 0; i < kLevelCount; ++i) level_names[i] = recompute_name(kLevels[i]);
  try {
    Trial trial;
    trial.choice.micro_batch = row.at("micro_batch").get<int64_t>();
    for (const json& name : row.at("recompute")) {
      const auto level = position(name.get<std::string>(), level_names);
      if (!level) return std::nullopt;
      trial.choice.levels.push_back(kLevels[*level]);
    }
    trial.choice.loss_chunk = row.at("loss_chunk").get<int64_t>();
    const auto outcome = position(row.at("outcome").get<std::string>(), kOutcomeNames);
    if (!outcome) return std::nullopt;
    trial.outcome = static_cast<Outcome>(*outcome);
    trial.predicted_seconds = row.at("predicted_seconds").get<double>();
    trial.tokens_per_second = row.at("tokens_per_second").get<double>();
    trial.step_ms = row.at("step_ms").get<double>();
    trial.device_bytes = row.at("device_bytes").get<int64_t>();
    trial.note = row.at("note").get<std::string>();
    const bool sound = trial.choice.micro_batch > 0 && trial.choice.loss_chunk > 0 &&
                       !trial.choice.levels.empty() &&
                       (trial.outcome != Outcome::ran || trial.tokens_per_second > 0);
    return sound ? std::optional(trial) : std::nullopt;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

json write_trial(const Trial& trial) {
  json levels = json::array();
  for (const RecomputeLevel level : trial.choice.levels) levels.push_back(recompute_name(level));
  return {{"micro_batch", trial.choice.micro_batch},
          {"recompute", levels},
          {"loss_chunk", trial.choice.loss_chunk},
          {"outcome", outcome_name(trial.outcome)},
          {"predicted_seconds", trial.predicted_seconds},
          {"tokens_per_second", trial.tokens_per_second},
          {"step_ms", trial.step_ms},
          {"device_bytes", trial.device_bytes},
          {"note", trial.note}};
}

std::vector<Trial> trials_of(const json& set) {
  std::vector<Trial> trials;
  for (const json& row : set["trials"]) {
    if (auto trial = read_trial(row)) trials.push_back(std::move(*trial));
  }
  return trials;
}

}  // namespace

const char* outcome_name(Outcome outcome) { return kOutcomeNames[static_cast<size_t>(outcome)]; }

std::vector<Trial> find_trials(const std::string& file, const TunedKey& key) {
  const json root = parse(file);
  for (const json& set : root["tuned"]) {
    if (is_of(set, key)) return trials_of(set);
  }
  return {};
}

std::string store_trials(const std::string& file, const TunedKey& key, const std::vector<Trial>& trials) {
  json root = parse(file);
  json sets = json::array();
  for (json& other : root["tuned"]) {
    if (!is_of(other, key)) sets.push_back(std::move(other));
  }
  if (!trials.empty()) {
    json rows = json::array();
    for (const Trial& trial : trials) rows.push_back(write_trial(trial));
    sets.push_back({{"uuid", key.card.uuid},
                    {"driver", key.card.driver},
                    {"version", key.card.version},
                    {"budget", key.budget},
                    {"config", key.config},
                    {"trials", rows}});
  }
  root["tuned"] = std::move(sets);
  return root.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

const Trial* fastest(const std::vector<Trial>& trials, int64_t budget) {
  const Trial* best = nullptr;
  for (const Trial& trial : trials) {
    if (trial.outcome != Outcome::ran || trial.device_bytes > budget) continue;
    if (best == nullptr || trial.tokens_per_second > best->tokens_per_second) best = &trial;
  }
  return best;
}

std::optional<Choice> tuned_choice(const std::string& file, const TunedKey& key) {
  std::optional<Choice> choice;
  int64_t nearest = key.budget / kNearBudget + 1;
  const json root = parse(file);
  for (const json& set : root["tuned"]) {
    if (!is_like(set, key)) continue;
    const int64_t distance = std::abs(set["budget"].get<int64_t>() - key.budget);
    if (distance >= nearest) continue;
    const std::vector<Trial> trials = trials_of(set);
    const Trial* best = fastest(trials, key.budget);
    if (best == nullptr) continue;
    choice = best->choice;
    nearest = distance;
  }
  return choice;
}

}  // namespace narrowgauge::plan
