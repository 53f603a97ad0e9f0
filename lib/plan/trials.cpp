#include "lib/plan/trials.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace narrowgauge::plan {
namespace {

constexpr double kPromising = 1.1;  // times the fastest
constexpr int64_t kSafe = 20;       // a margin of one part in so many of the budget
constexpr int64_t kUnlike = 8;      // one of so many layers
constexpr size_t kPool = 256;       // of the fastest, to choose the unlike from

// Layers that would have to change their level.
int64_t layers_apart(const Choice& a, const Choice& b) {
  const LevelCounts mine = count_levels(a.levels);
  const LevelCounts theirs = count_levels(b.levels);
  int64_t changes = 0;
  for (size_t i = 0; i < kLevelCount; ++i) changes += std::abs(mine[i] - theirs[i]);
  return changes / 2;
}

bool is_like(const Choice& a, const Choice& b, int64_t apart) {
  return a.micro_batch == b.micro_batch && a.loss_chunk == b.loss_chunk && layers_apart(a, b) < apart;
}

// Whether `a` recomputes what `b` does and more, and nothing is different else: it cannot be faster.
bool is_smaller(const Choice& a, const Choice& b) {
  return a.micro_batch == b.micro_batch && a.loss_chunk == b.loss_chunk &&
         std::equal(a.levels.begin(), a.levels.end(), b.levels.begin(), b.levels.end(),
                    [](RecomputeLevel mine, RecomputeLevel theirs) { return mine >= theirs; });
}

std::vector<Candidate> best_of_each_micro_batch(const Request& request, const Rates& rates) {
  std::vector<Candidate> best;
  for (const int64_t micro_batch : micro_batches(request.config)) {
    Request one = request;
    one.config.train.micro_batch = micro_batch;
    one.candidates = 1;
    const std::vector<Candidate> found = search(one, rates);
    best.insert(best.end(), found.begin(), found.end());
  }
  std::sort(best.begin(), best.end(), is_better);
  return best;
}

std::vector<Candidate> in_order(const Request& request, const Rates& rates) {
  std::vector<Candidate> picked = best_of_each_micro_batch(request, rates);
  if (picked.empty()) return picked;
  const double limit = kPromising * picked.front().seconds;
  const auto slow = std::find_if(picked.begin(), picked.end(),
                                 [&](const Candidate& candidate) { return candidate.seconds > limit; });
  const std::vector<Candidate> put_off(slow, picked.end());
  picked.erase(slow, picked.end());

  Request safe = request;
  safe.budget = request.budget - request.budget / kSafe;
  safe.candidates = 1;
  const auto is_safe = [&](const Candidate& candidate) { return candidate.bytes <= safe.budget; };
  if (std::none_of(picked.begin(), picked.end(), is_safe)) {
    const std::vector<Candidate> found = search(safe, rates);
    picked.insert(picked.begin() + 1, found.begin(), found.end());
  }

  Request wide = request;
  wide.candidates = kPool;
  const int64_t apart = std::max<int64_t>(1, request.config.model.layers / kUnlike);
  const std::vector<Candidate> pool = search(wide, rates);
  for (const bool smaller : {false, true}) {
    for (const Candidate& next : pool) {
      const bool known = std::any_of(picked.begin(), picked.end(), [&](const Candidate& before) {
        return is_like(before.choice, next.choice, apart) ||
               (!smaller && is_smaller(next.choice, before.choice));
      });
      if (!known) picked.push_back(next);
    }
  }
  const auto is_new = [&](const Candidate& late) {
    return std::none_of(picked.begin(), picked.end(),
                        [&](const Candidate& before) { return before.choice == late.choice; });
  };
  std::copy_if(put_off.begin(), put_off.end(), std::back_inserter(picked), is_new);
  return picked;
}

}  // namespace

std::vector<Candidate> pick_trials(const Request& request, const Rates& rates) {
  std::vector<std::vector<Candidate>> orders{in_order(request, rates)};
  if (request.config.train.deterministic == "auto") {
    Request freer = request;
    freer.config.train.deterministic = "false";
    orders.push_back(in_order(freer, rates));
  }
  std::vector<Candidate> picked;
  std::vector<size_t> next(orders.size(), 0);
  const auto is_picked = [&](const Candidate& candidate) {
    return std::any_of(picked.begin(), picked.end(),
                       [&](const Candidate& before) { return before.choice == candidate.choice; });
  };
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < orders.size() && picked.size() < request.candidates; ++i) {
      while (next[i] < orders[i].size() && is_picked(orders[i][next[i]])) ++next[i];
      if (next[i] == orders[i].size()) continue;
      picked.push_back(orders[i][next[i]]);
      more = true;
    }
  }
  return picked;
}

}  // namespace narrowgauge::plan
