#include "lib/plan/rates.h"

#include <cmath>
#include <limits>

#include "lib/plan/time.h"
#include "tests/plan/cases.h"
#include "tests/support/catch.h"

namespace narrowgauge::plan {
namespace {

const Probe kSmall{.work = Work::product, .rows = 1024, .shape = {1792, 5376, 0, 0}};
const Probe kLarge{.work = Work::product, .rows = 16384, .shape = {1792, 5376, 0, 0}};

Probe with_rows(Probe probe, int64_t rows) {
  probe.rows = rows;
  return probe;
}

// Twice the roofline at few rows, 1.2 times at many.
Rates measured() {
  const Card& card = named_card("5080");
  const Roofline roofline(card, false);
  return {card, false, {{kSmall, 2 * roofline.seconds(kSmall)}, {kLarge, 1.2 * roofline.seconds(kLarge)}}};
}

TEST_CASE("measured shapes take what was measured") {
  const Roofline roofline(named_card("5080"), false);
  const Rates rates = measured();
  REQUIRE_FALSE(rates.estimated());
  REQUIRE(Rates(named_card("5080"), false).estimated());
  REQUIRE(rates.seconds(kSmall) == 2 * roofline.seconds(kSmall));
  REQUIRE(rates.seconds(kLarge) == 1.2 * roofline.seconds(kLarge));
  const Probe other{.work = Work::traffic, .rows = 1 << 20, .shape = {}};  // nothing measured of that work
  REQUIRE(rates.seconds(other) == roofline.seconds(other));
}

TEST_CASE("more rows never take less time, and there are no steps at measured ones") {
  const Rates rates = measured();
  const Roofline roofline(named_card("5080"), false);
  double before = 0;
  for (int64_t rows = 64; rows < 100000; rows += 64) {
    const double now = rates.seconds(with_rows(kSmall, rows));
    REQUIRE(now >= before * (1 - 1e-12));
    before = now;
  }
  for (const int64_t rows : {1024, 16384}) {
    const double at = rates.seconds(with_rows(kSmall, rows));
    CHECK(rates.seconds(with_rows(kSmall, rows + 1)) < 1.02 * at);
    CHECK(rates.seconds(with_rows(kSmall, rows - 1)) > 0.98 * at);
  }
  // Beyond: the efficiency of the last one.
  CHECK(rates.seconds(with_rows(kSmall, 1 << 20)) ==
        Approx(1.2 * roofline.seconds(with_rows(kSmall, 1 << 20))));
  // Another shape: the efficiency of the nearest.
  Probe near = kLarge;
  near.shape[1] = 4096;
  CHECK(rates.seconds(near) == Approx(1.2 * roofline.seconds(near)));
}

TEST_CASE("measurements that contradict one another") {
  const Rates rates(named_card("5080"), false, {{kSmall, 2e-3}, {kLarge, 1e-3}, {kSmall, 3e-3}});
  REQUIRE(rates.seconds(kSmall) == 3e-3);
  REQUIRE(rates.seconds(kLarge) == 3e-3);  // not faster than fewer rows
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    REQUIRE_THROWS_AS(Rates(named_card("5080"), false, {{kSmall, bad}}), std::invalid_argument);
  }
  REQUIRE_THROWS_AS(Rates(named_card("5080"), false, {{with_rows(kSmall, 0), 1.0}}), std::invalid_argument);
}

TEST_CASE("the roofline grows with every size") {
  for (const char* card : {"3060", "5080", "H200"}) {
    const Roofline roofline(named_card(card), false);
    for (const Work work : {Work::product, Work::product_input_grad, Work::product_weight_grad,
                            Work::attention, Work::attention_backward, Work::traffic, Work::launch}) {
      const bool attention = work == Work::attention || work == Work::attention_backward;
      Probe probe{.work = work, .rows = 1, .shape = {1024, 1024, 2, 0}};
      if (attention) probe.shape = {1024, 16, 16, 64};
      double before = 0;
      for (; probe.rows < 30000; probe.rows += probe.rows / 7 + 1) {
        const double now = roofline.seconds(probe);
        REQUIRE(now >= before);
        before = now;
      }
    }
    Probe probe{.work = Work::product, .rows = 4096, .shape = {2048, 2048, 0, 0}};
    const double flop = 2.0 * 4096 * 2048 * 2048;
    CHECK(roofline.seconds(probe) > flop / named_card(card).flops());
    // A wave that is hardly begun costs: 129 rows of tiles against 128 on 132 multiprocessors or fewer.
    CHECK(roofline.seconds({.work = Work::product, .rows = 128, .shape = {2048, 256, 0, 0}}) >
          roofline.seconds({.work = Work::product, .rows = 12800, .shape = {2048, 256, 0, 0}}) / 100);
  }
}

TEST_CASE("rates of several cards live in one file") {
  const RatesKey first{.uuid = "aa", .driver = "580.1", .version = "0.1.0"};
  const RatesKey second{.uuid = "bb", .driver = "580.1", .version = "0.1.0"};
  std::string file = store_rates("", first, {{kSmall, 1e-3}, {kLarge, 0.1234567890123456}});
  file = store_rates(file, second, {{kSmall, 5e-3}});
  file = store_rates(file, first, {{kSmall, 2e-3}});  // the other measurement stays
  REQUIRE(find_rates(file, first) == std::vector<Measurement>{{kSmall, 2e-3}, {kLarge, 0.1234567890123456}});
  REQUIRE(find_rates(file, second) == std::vector<Measurement>{{kSmall, 5e-3}});
  RatesKey other = first;
  other.driver = "590";
  REQUIRE(find_rates(file, other).empty());
  other = first;
  other.version = "0.2.0";
  REQUIRE(find_rates(file, other).empty());
  other = first;
  other.kernels = "fp32";
  REQUIRE(find_rates(file, other).empty());
  for (const char* broken : {"", "{", "[]", "{\"format\": 7, \"cards\": []}", "{\"format\": 1}"}) {
    REQUIRE(find_rates(broken, first).empty());
    REQUIRE(find_rates(store_rates(broken, first, {{kSmall, 1.0}}), first).size() == 1);
  }
  REQUIRE(find_rates(R"({"format": 1, "cards": [{"uuid": "aa", "driver": "580.1", "version": "0.1.0",
                         "kernels": "", "points": [{"work": "magic", "rows": 1, "shape": [0,0,0,0], "seconds": 1},
                                    {"work": "launch", "rows": 1, "shape": [0], "seconds": 1},
                                    {"work": "launch", "rows": 1, "shape": [0,0,0,0], "seconds": -1}, 7]}]})",
                     first)
              .empty());
}

TEST_CASE("the probes of a model are all that its steps ask for") {
  for (const Config& config : small_configs()) {
    const std::vector<Probe> wanted = probes(config, {config.data.context}, {1, 2, 4});
    std::vector<Measurement> points;
    for (const Probe& probe : wanted) points.push_back({probe, 1.0});
    REQUIRE(std::is_sorted(wanted.begin(), wanted.end()));
    REQUIRE(std::adjacent_find(wanted.begin(), wanted.end()) == wanted.end());
    // With a second for every product and pass, a step counts them.
    const Rates rates(named_card("5080"), config.train.dtype == "fp32", points);
    const TimeModel time(config, rates);
    const double layers = 4;
    for (const int64_t micro_batch : {1, 2, 4}) {
      const double passes = 8.0 / static_cast<double>(micro_batch);
      const double chunks = std::ceil(static_cast<double>(micro_batch) * 128 / 256);
      const StepTime base = time.base(micro_batch, config.memory.loss_chunk);
      CHECK(base.products == Approx(passes * (layers * 12 + chunks * 3)));
      CHECK(base.attention == Approx(passes * layers * 2));
      CHECK(time.level(micro_batch, RecomputeLevel::elementwise).products == 0);
      CHECK(time.level(micro_batch, RecomputeLevel::ffn).products == Approx(passes));
      CHECK(time.level(micro_batch, RecomputeLevel::ffn_qkv).products == Approx(2 * passes));
      CHECK(time.level(micro_batch, RecomputeLevel::block).products == Approx(3 * passes));
      CHECK(time.level(micro_batch, RecomputeLevel::block).attention == Approx(passes));
    }
  }
}

TEST_CASE("a step of 977M parameters on an H200: what was measured") {
  Config config;  // the defaults are that model
  config.train.deterministic = "false";
  const Rates rates(named_card("H200"), false);
  const TimeModel model(config, rates);
  const StepTime time = model.step({.micro_batch = 1,
                                    .levels = std::vector<RecomputeLevel>(24, RecomputeLevel::none),
                                    .loss_chunk = 4096});
  CHECK(time.products == Approx(0.5416).epsilon(0.02));
  CHECK(time.attention == Approx(0.2523).epsilon(0.02));
  CHECK(time.elementwise == Approx(0.0684).epsilon(0.02));
  CHECK(time.gaps == Approx(0.0225).epsilon(0.05));
  CHECK(time.optimizer == Approx(0.0037).epsilon(0.05));
  CHECK(time.loss == Approx(0.0024).epsilon(0.05));
  CHECK(time.embedding == Approx(0.0019).epsilon(0.05));
  CHECK(time.total() == Approx(0.898).epsilon(0.02));
  CHECK(time.recompute == 0);
  CHECK(model_flops_per_token(config.model, 4096) == Approx(6.92e9).epsilon(0.002));
}

TEST_CASE("a level that keeps less takes more time") {
  for (const Config& config : small_configs()) {
    const Rates rates(named_card("5080"), config.train.dtype == "fp32");
    const TimeModel time(config, rates);
    for (const int64_t micro_batch : {1, 2, 8}) {
      REQUIRE(time.level(micro_batch, RecomputeLevel::none).total() == 0);
      for (size_t i = 1; i < kLevelCount; ++i) {
        const StepTime more = time.level(micro_batch, kLevels[i]);
        REQUIRE(more.total() > time.level(micro_batch, kLevels[i - 1]).total());
        REQUIRE(more.recompute == more.total());
      }
    }
  }
}

}  // namespace
}  // namespace narrowgauge::plan
