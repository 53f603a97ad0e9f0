// What is measured of a card and what is kept, with a calibration that is made up.
#include "lib/bench/card_rates.h"

#include <algorithm>
#include <fstream>

#include "lib/base/file.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"

namespace narrowgauge::bench {
namespace {

using plan::Measurement;
using plan::Probe;
using plan::Work;

Config small_model(const std::vector<std::string>& settings = {}) {
  std::vector<std::string> all{"model.layers=2",
                               "model.hidden_size=256",
                               "model.heads=4",
                               "model.ffn_size=512",
                               "model.vocab_size=1000",
                               "data.context=256",
                               "train.tokens_per_step=16384"};
  all.insert(all.end(), settings.begin(), settings.end());
  return parse_config("", "test", all);
}

// Rows of the probes of one work, ascending.
std::vector<int64_t> rows_of(const std::vector<Probe>& probes, Work work) {
  std::vector<int64_t> rows;
  for (const Probe& probe : probes) {
    if (probe.work == work) rows.push_back(probe.rows);
  }
  return rows;
}

// Answers every probe with its number of calls, and remembers what it was asked.
struct Fake {
  Calibrate calibrate = [this](const std::vector<Probe>& probes) {
    ++calls;
    asked = probes;
    std::vector<Measurement> points;
    for (const Probe& probe : probes) points.push_back({probe, static_cast<double>(calls)});
    return points;
  };
  int calls = 0;
  std::vector<Probe> asked;
};

RatesPlace place_in(const test::TemporaryFolder& folder) {
  return {.file = folder.path() / "cache" / "rates.json",
          .key = {.uuid = "aa", .driver = "13.0", .version = "0.1.0", .kernels = "bf16"}};
}

TEST_CASE("the micro-batches of a search are measured up to 8 sequences and 16384 tokens") {
  const Work attention = Work::attention;
  CHECK(rows_of(wanted_probes(small_model()), attention) == std::vector<int64_t>{1, 2, 4, 8});
  CHECK(rows_of(wanted_probes(small_model({"train.micro_batch=16"})), attention) == std::vector<int64_t>{16});
  CHECK(rows_of(wanted_probes(small_model({"train.tokens_per_step=1536"})), attention) ==
        std::vector<int64_t>{1, 2, 3, 6});
  const std::string large = "train.tokens_per_step=65536";
  CHECK(rows_of(wanted_probes(small_model({"data.context=4096", large})), attention) ==
        std::vector<int64_t>{1, 2, 4});
  CHECK(rows_of(wanted_probes(small_model({"data.context=32768", large})), attention) ==
        std::vector<int64_t>{1});
  CHECK(rows_of(wanted_probes(small_model()), Work::traffic).size() == 2);
  CHECK(rows_of(wanted_probes(small_model()), Work::launch).size() == 1);
}

TEST_CASE("only what is missing is measured, and it joins what is kept") {
  const test::TemporaryFolder folder;
  const RatesPlace place = place_in(folder);
  const std::vector<Probe> some = wanted_probes(small_model({"train.micro_batch=1"}));
  const std::vector<Probe> all = wanted_probes(small_model());
  REQUIRE(kept_rates(place, "card", some, {}).empty());
  REQUIRE_FALSE(std::filesystem::exists(place.file));

  Fake fake;
  REQUIRE(kept_rates(place, "card", some, fake.calibrate).size() == some.size());
  REQUIRE(fake.asked == some);
  REQUIRE(kept_rates(place, "card", some, fake.calibrate).size() == some.size());
  REQUIRE(fake.calls == 1);

  const auto points = kept_rates(place, "card", all, fake.calibrate);
  REQUIRE(fake.calls == 2);
  REQUIRE(points.size() == all.size());
  REQUIRE(fake.asked.size() == all.size() - some.size());
  for (const Measurement& point : points) {
    const bool before = std::ranges::count(some, point.probe) > 0;
    REQUIRE(point.seconds == (before ? 1 : 2));
  }
  REQUIRE(kept_rates(place, "card", {}, {}).size() == all.size());
}

TEST_CASE("rates are kept apart by card, driver, version and kernels") {
  const test::TemporaryFolder folder;
  const RatesPlace place = place_in(folder);
  const std::vector<Probe> wanted = wanted_probes(small_model());
  Fake fake;
  (void)kept_rates(place, "card", wanted, fake.calibrate);
  for (std::string plan::RatesKey::*part :
       {&plan::RatesKey::uuid, &plan::RatesKey::driver, &plan::RatesKey::version, &plan::RatesKey::kernels}) {
    RatesPlace other = place;
    other.key.*part = "other";
    REQUIRE(kept_rates(other, "card", wanted, {}).empty());
    const int before = fake.calls;
    REQUIRE(kept_rates(other, "card", wanted, fake.calibrate).size() == wanted.size());
    REQUIRE(fake.calls == before + 1);
  }
  REQUIRE(kept_rates(place, "card", wanted, {}).front().seconds == 1);
  const std::string usual = kernels_key(small_model());
  for (const char* setting :
       {"train.dtype=fp32", "train.deterministic=false", "train.attention=flash", "train.tune_kernels=false",
        "data.document_mask=true", "memory.attention_workspace=1MiB"}) {
    INFO(setting);
    REQUIRE(kernels_key(small_model({setting})) != usual);
  }
  REQUIRE(kernels_key(small_model({"model.layers=7", "train.micro_batch=2"})) == usual);
}

TEST_CASE("a damaged file of rates is measured anew") {
  const test::TemporaryFolder folder;
  const RatesPlace place = place_in(folder);
  const std::vector<Probe> wanted = wanted_probes(small_model());
  std::filesystem::create_directories(place.file.parent_path());
  Fake fake;
  for (const char* text : {"", "{", "[]", R"({"format": 2, "cards": []})", R"({"format": 1, "cards": 7})"}) {
    std::ofstream(place.file) << text;
    REQUIRE(kept_rates(place, "card", wanted, {}).empty());
    REQUIRE(kept_rates(place, "card", wanted, fake.calibrate).size() == wanted.size());
    REQUIRE(kept_rates(place, "card", wanted, {}).size() == wanted.size());
  }
}

TEST_CASE("without a place to keep them rates are measured all the same") {
  const std::vector<Probe> wanted = wanted_probes(small_model());
  Fake fake;
  RatesPlace nowhere;
  REQUIRE(kept_rates(nowhere, "card", wanted, fake.calibrate).size() == wanted.size());
  REQUIRE(kept_rates(nowhere, "card", wanted, fake.calibrate).size() == wanted.size());
  REQUIRE(fake.calls == 2);
  const auto nothing = [](const std::vector<Probe>&) { return std::vector<Measurement>{}; };
  const test::TemporaryFolder folder;
  REQUIRE(kept_rates(place_in(folder), "card", wanted, nothing).empty());
  REQUIRE_FALSE(std::filesystem::exists(place_in(folder).file));
}

TEST_CASE("a CPU has estimates") {
  const plan::Card& card = plan::named_card("5080");
  const plan::Rates rates = card_rates(train::ComputeDevice{}, small_model(), card, /*measure=*/true);
  REQUIRE(rates.estimated());
}

}  // namespace
}  // namespace narrowgauge::bench
