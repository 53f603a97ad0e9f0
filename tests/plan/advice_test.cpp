#include "lib/plan/advice.h"

#include "lib/base/error.h"
#include "lib/base/units.h"
#include "lib/plan/plan.h"
#include "tests/plan/cases.h"
#include "tests/support/catch.h"

namespace narrowgauge::plan {
namespace {

Config large() {  // 977M, exact master, as configs/1b-16gb.yaml
  Config config;
  config.optim.master = "split";
  config.train.sample_every = 1000;
  return config;
}

Request request_of(const Config& config, double budget) {
  return {.config = config,
          .surroundings = on_card("5080"),
          .budget = gibibytes(budget),
          .loss_chunks = {},
          .candidates = 1};
}

const Rates& rates() {
  static const Rates rates(named_card("5080"), false);
  return rates;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("a plan is the best candidate with its figures") {
  const Request request = request_of(large(), 14.5);
  const Plan plan = make_plan(request, rates());
  const Candidate best = search(request, rates()).front();
  REQUIRE(plan.choice == best.choice);
  REQUIRE(plan.memory.bytes() == best.bytes);
  REQUIRE(plan.margin() == request.budget - best.bytes);
  REQUIRE(plan.margin() >= 0);
  REQUIRE(plan.time.total() == Approx(best.seconds));
  REQUIRE(plan.tokens_per_second == Approx(65536 / best.seconds));
  REQUIRE(plan.estimated);
  REQUIRE(plan.config.train.micro_batch == best.choice.micro_batch);
  REQUIRE(fixed_levels(plan.config) == best.choice.levels);
  // A config without auto is planned as it stands.
  Request again = request;
  again.config = plan.config;
  REQUIRE(make_plan(again, rates()).choice == best.choice);
}

TEST_CASE("other micro-batches lose for a reason") {
  const Request request = request_of(large(), 14.5);
  const Candidate best = search(request, rates()).front();
  const std::vector<Loser> all = losers(request, rates(), best);
  size_t others = 0;
  for (const Loser& loser : all) {
    REQUIRE(loser.fits == (loser.candidate.bytes <= request.budget));
    if (loser.fits) REQUIRE(loser.candidate.seconds >= best.seconds);
    if (loser.candidate.choice.micro_batch != best.choice.micro_batch) ++others;
  }
  REQUIRE(others == 4);  // of 1, 2, 4, 8 and 16
  // The first is one level faster in one layer, and too large.
  REQUIRE(all.front().candidate.choice.micro_batch == best.choice.micro_batch);
  REQUIRE_FALSE(all.front().fits);
  REQUIRE(all.front().candidate.seconds < best.seconds);
}

TEST_CASE("what would be faster but is a choice for the user") {
  const Request request = request_of(large(), 12.5);
  const Candidate best = search(request, rates()).front();
  const std::vector<Change> changes = temptations(request, rates(), best);
  REQUIRE_FALSE(changes.empty());
  bool master = false;
  double before = 0;
  for (const Change& change : changes) {
    REQUIRE(change.candidate.seconds < best.seconds);
    REQUIRE(change.candidate.seconds >= before);
    REQUIRE(change.candidate.bytes <= request.budget);
    before = change.candidate.seconds;
    master = master || change.setting == "optim.master=stochastic";
  }
  REQUIRE(master);
}

TEST_CASE("nothing fits: what is missing, and the changes that help") {
  const Request request = request_of(large(), 9.2);
  REQUIRE(search(request, rates()).empty());
  const std::vector<Change> changes = remedies(request, rates());
  REQUIRE_FALSE(changes.empty());
  for (const Change& change : changes) {
    INFO(change.setting);
    REQUIRE(change.candidate.bytes <= request.budget);
  }
  const int64_t missing = smallest(request, rates()).bytes - request.budget;
  REQUIRE(missing > 0);
  const std::string text = shortfall(request, rates());
  INFO(text);
  REQUIRE(has(text, "nothing fits"));
  REQUIRE(has(text, changes.front().setting));
  for (size_t i = 1; i < changes.size(); ++i) {  // of a key one value
    REQUIRE_FALSE((has(changes[i].setting, "data.context") && has(changes[i - 1].setting, "data.context")));
  }
  REQUIRE_THROWS_AS(make_plan(request, rates()), UserError);
  // With what the sentence asks for, it fits; with exactly what is missing, too.
  Request enough = request;
  enough.budget += missing;
  REQUIRE_FALSE(search(enough, rates()).empty());
  const std::string words = "a budget of ";
  const std::string amount = text.substr(text.rfind(words) + words.size());
  enough.budget = parse_bytes(amount);
  REQUIRE_FALSE(search(enough, rates()).empty());
  enough.budget -= gibibytes(0.11);
  REQUIRE(search(enough, rates()).empty());

  const std::string hopeless = shortfall(request_of(large(), 1), rates());
  INFO(hopeless);
  REQUIRE(has(hopeless, "no single key"));
}

TEST_CASE("a fixed key that costs speed is named") {
  Config config = large();
  config.memory.recompute = {RecomputeLevel::block};
  const Request request = request_of(config, 14.5);
  const std::vector<Change> changes = temptations(request, rates(), search(request, rates()).front());
  REQUIRE(changes.front().setting == "memory.recompute=auto");
}

TEST_CASE("fixed keys are the first remedy") {
  Config config = large();
  config.memory.recompute = {RecomputeLevel::none};
  config.train.micro_batch = 4;
  const std::vector<Change> changes = remedies(request_of(config, 14.5), rates());
  REQUIRE(changes.front().setting == "memory.recompute=auto");
  for (const Change& change : changes) REQUIRE(change.setting != "optim.master=split");
}

}  // namespace
}  // namespace narrowgauge::plan
