#include "lib/plan/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "lib/base/text.h"
#include "lib/base/units.h"

namespace narrowgauge::plan {
namespace {

struct Edit {
  std::string setting;
  std::function<void(Config&)> make;
};

Edit loss_chunk(int64_t tokens) {
  return {fmt::format("memory.loss_chunk={}", tokens),
          [=](Config& config) { config.memory.loss_chunk = tokens; }};
}

std::vector<Edit> less_exact(const Config& config) {
  std::vector<Edit> edits;
  if (config.train.dtype == "bf16" && config.optim.master != "stochastic") {
    edits.push_back({"optim.master=stochastic", [](Config& c) { c.optim.master = "stochastic"; }});
  }
  if (config.train.dtype == "bf16" && config.memory.grad_dtype != "bf16") {
    edits.push_back({"memory.grad_dtype=bf16", [](Config& c) { c.memory.grad_dtype = "bf16"; }});
  }
  if (config.optim.state != "8bit") {
    edits.push_back({"optim.state=8bit", [](Config& c) { c.optim.state = "8bit"; }});
  } else if (config.optim.embedding_state != "8bit") {
    edits.push_back({"optim.embedding_state=8bit", [](Config& c) { c.optim.embedding_state = "8bit"; }});
  }
  return edits;
}

// What the config fixes left to the plan, and no samples.
std::vector<Edit> freedom(const Config& config) {
  std::vector<Edit> edits;
  if (!config.memory.recompute.empty()) {
    edits.push_back({"memory.recompute=auto", [](Config& c) { c.memory.recompute.clear(); }});
  }
  if (config.train.micro_batch > 0) {
    edits.push_back({"train.micro_batch=auto", [](Config& c) { c.train.micro_batch = 0; }});
  }
  if (config.train.sample_every > 0) {
    edits.push_back({"train.sample_every=0", [](Config& c) { c.train.sample_every = 0; }});
  }
  return edits;
}

std::vector<Edit> room_makers(const Config& config) {
  std::vector<Edit> edits = freedom(config);
  constexpr int64_t kSmallScratch = int64_t{128} << 20;
  if (config.memory.attention_workspace > kSmallScratch) {
    edits.push_back({"memory.attention_workspace=128MiB",
                     [](Config& c) { c.memory.attention_workspace = kSmallScratch; }});
  }
  for (const int64_t tokens : {2048, 1024, 512}) {
    if (tokens < config.memory.loss_chunk) edits.push_back(loss_chunk(tokens));
  }
  for (Edit& edit : less_exact(config)) edits.push_back(std::move(edit));
  for (int64_t context = config.data.context / 2; context >= 256 && context % 2 == 0; context /= 2) {
    edits.push_back({fmt::format("data.context={}", context), [=](Config& c) {
                       c.data.context = context;
                       c.train.micro_batch = 0;
                     }});
  }
  return edits;
}

// An amount that is at least `bytes`, with one decimal.
std::string enough(int64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / 1048576;
  if (mebibytes < 1024) return fmt::format("{:.0f} MiB", std::ceil(mebibytes));
  return fmt::format("{:.1f} GiB", std::ceil(mebibytes / 1024 * 10) / 10);
}

// The best after each edit that leaves something that fits.
std::vector<Change> after(const std::vector<Edit>& edits, const Request& request, const Rates& rates) {
  std::vector<Change> changes;
  for (const Edit& edit : edits) {
    Request changed = request;
    edit.make(changed.config);
    changed.loss_chunks.clear();
    changed.candidates = 1;
    for (Candidate& best : search(changed, rates)) changes.push_back({edit.setting, std::move(best)});
  }
  return changes;
}

std::string key_of(const Change& change) { return change.setting.substr(0, change.setting.find('=')); }

// With the best one's micro-batch and chunk: the nearest choice that is faster, whether it fits or not.
std::optional<Candidate> next_faster(const Request& request, const Rates& rates, const Candidate& best) {
  if (!fixed_levels(request.config).empty()) return std::nullopt;
  const MemoryModel memory(request.config, request.surroundings);
  const TimeModel time(request.config, rates);
  std::optional<Candidate> nearest;
  const LevelCounts counts = count_levels(best.choice.levels);
  for (size_t from = 1; from < kLevelCount; ++from) {
    if (counts[from] == 0) continue;
    LevelCounts faster = counts;
    --faster[from];
    ++faster[from - 1];
    Candidate candidate{.choice = best.choice};
    candidate.choice.levels = sorted_levels(faster);
    candidate.bytes = memory.bytes(candidate.choice);
    candidate.seconds = time.step(candidate.choice).total();
    if (candidate.bytes > request.budget && (!nearest || candidate.bytes < nearest->bytes)) {
      nearest = std::move(candidate);
    }
  }
  return nearest;
}

}  // namespace

std::vector<Loser> losers(const Request& request, const Rates& rates, const Candidate& best) {
  std::vector<Loser> all;
  if (auto faster = next_faster(request, rates, best)) all.push_back({std::move(*faster), false});
  std::vector<int64_t> chunks = request.loss_chunks;
  if (chunks.empty()) chunks = {request.config.memory.loss_chunk};
  for (const int64_t micro_batch : micro_batches(request.config)) {
    for (const int64_t chunk : chunks) {
      if (micro_batch == best.choice.micro_batch && chunk == best.choice.loss_chunk) continue;
      Request other = request;
      other.config.train.micro_batch = micro_batch;
      other.loss_chunks = {chunk};
      other.candidates = 1;
      const std::vector<Candidate> found = search(other, rates);
      all.push_back({found.empty() ? smallest(other, rates) : found.front(), !found.empty()});
    }
  }
  return all;
}

std::vector<Change> remedies(const Request& request, const Rates& rates) {
  std::vector<Change> changes = after(room_makers(request.config), request, rates);
  const auto same_key = [](const Change& a, const Change& b) { return key_of(a) == key_of(b); };
  changes.erase(std::unique(changes.begin(), changes.end(), same_key), changes.end());
  return changes;
}

std::vector<Change> temptations(const Request& request, const Rates& rates, const Candidate& best) {
  constexpr double kWorthIt = 0.995;
  std::vector<Edit> edits = freedom(request.config);
  for (Edit& edit : less_exact(request.config)) edits.push_back(std::move(edit));
  for (const int64_t tokens : {2048, 4096, 8192, 16384}) {
    if (tokens != request.config.memory.loss_chunk) edits.push_back(loss_chunk(tokens));
  }
  std::vector<Change> changes = after(edits, request, rates);
  std::erase_if(changes,
                [&](const Change& change) { return change.candidate.seconds > kWorthIt * best.seconds; });
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.candidate.seconds < b.candidate.seconds;
  });
  return changes;
}

std::string shortfall(const Request& request, const Rates& rates) {
  const Candidate least = smallest(request, rates);
  std::vector<std::string> ways;
  for (const Change& change : remedies(request, rates)) {
    if (ways.size() < 3) ways.push_back("--set " + change.setting);
  }
  const std::string needed = enough(least.bytes);
  ways.push_back(fmt::format("a budget of {}", needed));
  return fmt::format(
      "nothing fits: the run needs {} of device memory at least (micro-batch {}, recompute {}), {} more than "
      "the budget of {}; it fits with {}{}",
      needed, least.choice.micro_batch, levels_text(least.choice.levels),
      format_bytes(least.bytes - request.budget), format_bytes(request.budget), join(ways, " or "),
      ways.size() == 1 ? ": no single key of the config is enough" : "");
}

}  // namespace narrowgauge::plan
