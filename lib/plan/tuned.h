#pragma once
// What `narrowgauge tune` measured, and where training finds it: pure functions over the text of a file.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/plan/choice.h"
#include "lib/plan/rates.h"

namespace narrowgauge::plan {

// How a real run of a choice ended. Only `ran` may be chosen.
enum class Outcome : uint8_t {
  ran,
  unsteady,       // a fifth of the steps took far longer than the median
  spilled,        // memory left the card
  over_budget,    // it took more device memory than it may
  out_of_memory,  // it ended so
  too_slow,       // it was killed
  failed,
};
inline constexpr int kOutcomes = static_cast<int>(Outcome::failed) + 1;
const char* outcome_name(Outcome outcome);  // "out of memory"

struct Trial {
  Choice choice;
  double predicted_seconds = 0;  // of a step
  Outcome outcome = Outcome::failed;
  double tokens_per_second = 0;  // the median; this and the next two are 0 where nothing was measured
  double step_ms = 0;
  int64_t device_bytes = 0;  // of the process at its peak
  std::string note{};        // more about the outcome; may be empty
  bool operator==(const Trial&) const = default;
};

// What trials are valid for.
struct TunedKey {
  RatesKey card;
  int64_t budget = 0;  // device bytes of the whole process
  std::string config;  // tuned_config
  bool operator==(const TunedKey&) const = default;
};

// Everything in a config that changes speed or memory of a step, the keys that a choice decides among them:
// what is fixed counts. One line.
std::string tuned_config(const Config& config);

// {"format": 1, "tuned": [{"uuid", "driver", "version", "budget", "config", "trials": [...]}]}. `file` is the
// file's text so far ("" for none); what it held for the key is replaced, and goes when there are no trials.
// A text that is no such file counts as none.
std::string store_trials(const std::string& file, const TunedKey& key, const std::vector<Trial>& trials);
// Those of exactly this key, as they were stored; malformed ones are left out.
std::vector<Trial> find_trials(const std::string& file, const TunedKey& key);

// The fastest that ran within `budget` bytes; the earlier of two; nullptr when none did.
const Trial* fastest(const std::vector<Trial>& trials, int64_t budget);

// The choice of the fastest trial that ran and takes no more than the key's budget. Where trials with
// exactly that budget offer none, the nearest budget counts that differs by a sixteenth at most: "what is
// free" is never twice the same.
std::optional<Choice> tuned_choice(const std::string& file, const TunedKey& key);

}  // namespace narrowgauge::plan
