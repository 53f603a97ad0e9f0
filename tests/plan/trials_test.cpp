#include "lib/plan/trials.h"

#include <algorithm>
#include <set>

#include "tests/plan/cases.h"
#include "tests/support/catch.h"

namespace narrowgauge::plan {
namespace {

Request request_of(const Config& config, double budget, size_t candidates) {
  return {.config = config,
          .surroundings = on_card("5080"),
          .budget = gibibytes(budget),
          .loss_chunks = {},
          .candidates = candidates};
}

Config billion(const std::string& deterministic) {
  Config config;  // the defaults are the 977M model
  config.train.deterministic = deterministic;
  return config;
}

const Rates& rates() {
  static const Rates all(named_card("5080"), false);
  return all;
}

int64_t layers_apart(const Choice& a, const Choice& b) {
  const LevelCounts mine = count_levels(a.levels);
  const LevelCounts theirs = count_levels(b.levels);
  int64_t more = 0;
  for (size_t i = 0; i < kLevelCount; ++i) more += std::max<int64_t>(0, mine[i] - theirs[i]);
  return more;
}

void require_different(const std::vector<Candidate>& picked) {
  for (size_t i = 0; i < picked.size(); ++i) {
    for (size_t j = 0; j < i; ++j) REQUIRE_FALSE(picked[i].choice == picked[j].choice);
  }
}

TEST_CASE("trials begin with the plan, then the best of other micro-batches, and are unlike one another") {
  for (const double budget : {12.0, 14.5}) {
    const Request request = request_of(billion("false"), budget, 6);
    const std::vector<Candidate> picked = pick_trials(request, rates());
    REQUIRE(picked.size() == 6);
    Request best = request;
    best.candidates = 1;
    CHECK(picked.front().choice == search(best, rates()).front().choice);
    for (const Candidate& one : picked) {
      INFO(one.choice.micro_batch << ": " << levels_text(one.choice.levels) << ", " << one.seconds << " s, "
                                  << one.bytes);
      CHECK(one.bytes <= request.budget);
      CHECK(one.choice.loss_chunk == request.config.memory.loss_chunk);
      for (const Candidate& other : picked) {
        if (&one == &other || one.choice.micro_batch != other.choice.micro_batch) continue;
        CHECK(layers_apart(one.choice, other.choice) >= 3);
      }
    }
    std::set<int64_t> sizes;
    for (const int64_t micro_batch : micro_batches(request.config)) {
      best.config.train.micro_batch = micro_batch;
      const auto found = search(best, rates());
      if (!found.empty() && found.front().seconds < 1.1 * picked.front().seconds) sizes.insert(micro_batch);
    }
    REQUIRE(sizes.size() > 1);
    std::set<int64_t> first;
    for (size_t i = 0; i < std::min(sizes.size() + 1, picked.size()); ++i)
      first.insert(picked[i].choice.micro_batch);
    CHECK(first == sizes);
    const auto is_safe = [&](const Candidate& one) {
      return one.bytes <= request.budget - request.budget / 20;
    };
    CHECK(std::any_of(picked.begin(), picked.begin() + static_cast<int>(sizes.size()) + 1, is_safe));
    const std::vector<Candidate> again = pick_trials(request, rates());
    for (size_t i = 0; i < picked.size(); ++i) CHECK(again[i].choice == picked[i].choice);
  }
}

TEST_CASE("where determinism is open, trials are for either answer") {
  const Request open = request_of(billion("auto"), 14.5, 6);
  const std::vector<Candidate> picked = pick_trials(open, rates());
  REQUIRE(picked.size() == 6);
  require_different(picked);
  const auto first = [](const Config& config) {
    return pick_trials(request_of(config, 14.5, 1), rates()).front();
  };
  CHECK(picked[0].choice == first(billion("true")).choice);
  CHECK(picked[1].choice == first(billion("false")).choice);
  CHECK(picked[1].seconds < picked[0].seconds);
  CHECK_FALSE(picked[1].choice == picked[0].choice);
}

TEST_CASE("what is fixed is kept, and there may be fewer trials than wanted") {
  Config config = billion("true");
  config.train.micro_batch = 2;
  for (const Candidate& one : pick_trials(request_of(config, 14.5, 4), rates())) {
    CHECK(one.choice.micro_batch == 2);
  }
  config.memory.recompute = {RecomputeLevel::block};
  const auto one = pick_trials(request_of(config, 14.5, 4), rates());
  REQUIRE(one.size() == 1);
  CHECK(one.front().choice.levels == std::vector<RecomputeLevel>(24, RecomputeLevel::block));
  config.train.micro_batch = 0;  // the large ones are slower here, and still better than nothing
  const auto all = pick_trials(request_of(config, 14.5, 100), rates());
  CHECK(all.size() > 2);
  require_different(all);
  CHECK(pick_trials(request_of(config, 2, 4), rates()).empty());
}

TEST_CASE("trials of small models") {
  for (const Config& config : small_configs()) {
    const Rates its(named_card("5080"), config.train.dtype == "fp32");
    const auto picked = pick_trials(request_of(config, 1, 12), its);
    CHECK(picked.size() == 12);
    require_different(picked);
  }
}

}  // namespace
}  // namespace narrowgauge::plan
