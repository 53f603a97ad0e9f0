#include "lib/plan/search.h"

#include <algorithm>
#include <chrono>

#include "lib/plan/slab_bound.h"
#include "tests/plan/cases.h"
#include "tests/support/catch.h"

namespace narrowgauge::plan {
namespace {

Request request_of(const Config& config, int64_t budget, size_t candidates = 1) {
  return {.config = config,
          .surroundings = on_card("5080"),
          .budget = budget,
          .loss_chunks = {},
          .candidates = candidates};
}

Rates rates_of(const Config& config) { return {named_card("5080"), config.train.dtype == "fp32"}; }

// Every choice with its real bytes.
std::vector<Candidate> every_choice(const Request& request, const Rates& rates) {
  const MemoryModel memory(request.config, request.surroundings);
  const TimeModel time(request.config, rates);
  std::vector<Candidate> all;
  for (const int64_t chunk : request.loss_chunks) {
    for (const int64_t micro_batch : micro_batches(request.config)) {
      for (const LevelCounts& counts : all_counts(request.config.model.layers)) {
        Candidate one{
            .choice = {.micro_batch = micro_batch, .levels = sorted_levels(counts), .loss_chunk = chunk}};
        one.bytes = memory.bytes(one.choice);
        one.seconds = time.step(one.choice).total();
        all.push_back(one);
      }
    }
  }
  return all;
}

TEST_CASE("the search finds what testing every choice finds") {
  for (const Config& small : small_configs()) {
    for (const int64_t layers : {1, 2, 5, 8}) {
      Config config = small;
      config.model.layers = layers;
      if (layers == 8) config.train.tokens_per_step = 512;
      const Rates rates = rates_of(config);
      Request request = request_of(config, 0, 7);
      request.loss_chunks = {128, 256};
      const std::vector<Candidate> all = every_choice(request, rates);
      int64_t least = all.front().bytes;
      int64_t most = least;
      for (const Candidate& one : all) {
        least = std::min(least, one.bytes);
        most = std::max(most, one.bytes);
      }
      for (int part = -1; part <= 13; ++part) {
        request.budget = least + (most - least) * part / 12;
        std::vector<double> fitting;
        for (const Candidate& one : all) {
          if (one.bytes <= request.budget) fitting.push_back(one.seconds);
        }
        std::sort(fitting.begin(), fitting.end());
        const std::vector<Candidate> found = search(request, rates);
        INFO("layers " << layers << ", part " << part);
        REQUIRE(found.size() == std::min<size_t>(7, fitting.size()));
        for (size_t i = 0; i < found.size(); ++i) {
          REQUIRE(found[i].seconds == Approx(fitting[i]).epsilon(1e-12));
          REQUIRE(found[i].bytes <= request.budget);
          const MemoryModel memory(config, request.surroundings);
          REQUIRE(found[i].bytes == memory.bytes(found[i].choice));
          REQUIRE(found[i].seconds ==
                  Approx(TimeModel(config, rates).step(found[i].choice).total()).epsilon(1e-12));
          if (i > 0) REQUIRE_FALSE(is_better(found[i], found[i - 1]));
        }
      }
    }
  }
}

TEST_CASE("more budget never gives a slower plan") {
  for (const Config& config : small_configs()) {
    const Rates rates = rates_of(config);
    double before = 1e9;
    bool fitted = false;
    for (int64_t budget = gibibytes(0.7); budget < gibibytes(1.2); budget += int64_t{1} << 20) {
      const std::vector<Candidate> found = search(request_of(config, budget), rates);
      REQUIRE((!fitted || !found.empty()));
      if (found.empty()) continue;
      fitted = true;
      REQUIRE(found.front().seconds <= before);
      before = found.front().seconds;
    }
    REQUIRE(fitted);
  }
}

TEST_CASE("equal requests have equal results") {
  const Config config;
  for (const double budget : {10.0, 12.5, 14.5}) {
    const Request request = request_of(config, gibibytes(budget), 20);
    const auto first = search(request, rates_of(config));
    const auto second = search(request, rates_of(config));
    REQUIRE(first.size() == 20);
    REQUIRE(second.size() == 20);
    for (size_t i = 0; i < first.size(); ++i) {
      REQUIRE(first[i].choice == second[i].choice);
      REQUIRE(first[i].bytes == second[i].bytes);
      REQUIRE(first[i].seconds == second[i].seconds);
    }
  }
}

TEST_CASE("what the config fixes is kept") {
  Config config = small_configs()[0];
  const Rates rates = rates_of(config);
  config.train.micro_batch = 2;
  REQUIRE(micro_batches(config) == std::vector<int64_t>{2});
  for (const Candidate& one : search(request_of(config, gibibytes(2), 10), rates)) {
    REQUIRE(one.choice.micro_batch == 2);
    REQUIRE(one.choice.loss_chunk == 256);
  }
  config.memory.recompute = {RecomputeLevel::ffn};
  auto found = search(request_of(config, gibibytes(2), 10), rates);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].choice.levels == std::vector<RecomputeLevel>(4, RecomputeLevel::ffn));
  // A list that is not sorted by depth is taken as it stands.
  const std::vector<RecomputeLevel> list{RecomputeLevel::none, RecomputeLevel::block, RecomputeLevel::ffn,
                                         RecomputeLevel::block};
  config.memory.recompute = list;
  config.train.micro_batch = 0;
  found = search(request_of(config, gibibytes(2), 10), rates);
  REQUIRE(found.size() == 4);  // micro-batches 1, 2, 4, 8
  for (const Candidate& one : found) REQUIRE(one.choice.levels == list);
  REQUIRE(with_choice(config, found[0].choice).memory.recompute == list);
  REQUIRE(with_choice(config, found[0].choice).train.micro_batch == found[0].choice.micro_batch);
  REQUIRE(search(request_of(config, 1000, 10), rates).empty());
}

TEST_CASE("only divisors of a step's sequences are micro-batches") {
  Config config;
  config.train.tokens_per_step = 12 * config.data.context;
  REQUIRE(micro_batches(config) == std::vector<int64_t>{1, 2, 3, 4, 6, 12});
}

TEST_CASE("of equally fast choices the order of preference decides") {
  Candidate a{.choice = {.micro_batch = 1, .levels = sorted_levels({2, 0, 0, 0, 2}), .loss_chunk = 4096},
              .bytes = 1,
              .seconds = 1};
  Candidate b = a;
  REQUIRE_FALSE(is_better(a, b));
  b.seconds = 2;
  REQUIRE(is_better(a, b));
  b.seconds = 1;
  b.choice.loss_chunk = 2048;
  REQUIRE(is_better(a, b));
  b.choice = a.choice;
  b.choice.micro_batch = 2;
  REQUIRE(is_better(a, b));
  b.choice = a.choice;
  b.choice.levels = sorted_levels({1, 1, 0, 0, 2});
  REQUIRE(is_better(a, b));
}

TEST_CASE("a hundred layers are planned in less than a second") {
  Config config;
  config.model.layers = 100;
  config.model.qk_norm = true;
  config.train.tokens_per_step = 48 * config.data.context;  // ten micro-batches
  const Rates rates = rates_of(config);
  for (const double budget : {30.0, 35.0, 45.0, 80.0}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto found = search(request_of(config, gibibytes(budget), 3), rates);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    INFO("budget " << budget);
    REQUIRE(found.size() == 3);
    CHECK(seconds.count() < 1);
  }
}

TEST_CASE("levels in words") {
  REQUIRE(levels_text(sorted_levels({0, 20, 4, 0, 0})) == "4 x ffn, 20 x elementwise");
  REQUIRE(levels_text(sorted_levels({1, 0, 0, 1, 1})) == "1 x block, 1 x ffn+qkv, 1 x none");
  REQUIRE(count_levels(sorted_levels({1, 2, 3, 4, 5})) == LevelCounts{1, 2, 3, 4, 5});
  Config config;
  config.model.layers = 3;
  const Choice even{.micro_batch = 4, .levels = sorted_levels({0, 3, 0, 0, 0}), .loss_chunk = 512};
  REQUIRE(with_choice(config, even).memory.recompute == std::vector{RecomputeLevel::elementwise});
  REQUIRE(with_choice(config, even).memory.loss_chunk == 512);
}

}  // namespace
}  // namespace narrowgauge::plan
