#include "lib/plan/tuned.h"

#include "tests/plan/cases.h"
#include "tests/support/catch.h"

namespace narrowgauge::plan {
namespace {

TunedKey key_of(const std::string& uuid, int64_t budget) {
  return {.card = {.uuid = uuid, .driver = "13.0", .version = "0.1.0"},
          .budget = budget,
          .config = tuned_config(Config())};
}

Trial trial_of(int64_t micro_batch, Outcome outcome, double tokens_per_second, int64_t bytes) {
  return {.choice = {.micro_batch = micro_batch,
                     .levels = {RecomputeLevel::block, RecomputeLevel::ffn_qkv, RecomputeLevel::none},
                     .loss_chunk = 4096},
          .predicted_seconds = 0.1234567890123456,
          .outcome = outcome,
          .tokens_per_second = tokens_per_second,
          .step_ms = 12.5,
          .device_bytes = bytes,
          .note = "a \"note\""};
}

TEST_CASE("trials live in one file by card, budget and config") {
  std::vector<Trial> trials;
  for (int i = 0; i < kOutcomes; ++i) {
    trials.push_back(trial_of(1 + i, static_cast<Outcome>(i), 100.1 + i, 1000 + i));
  }
  const TunedKey first = key_of("aa", 5000);
  std::string file = store_trials("", first, trials);
  CHECK(find_trials(file, first) == trials);
  const TunedKey second = key_of("bb", 5000);
  file = store_trials(file, second, {trials[1]});
  file = store_trials(file, first, {trials[0]});  // replaced
  CHECK(find_trials(file, first) == std::vector{trials[0]});
  CHECK(find_trials(file, second) == std::vector{trials[1]});
  file = store_trials(file, first, {});  // forgotten
  CHECK(find_trials(file, first).empty());
  CHECK(find_trials(file, second).size() == 1);

  const auto differs = [&](TunedKey other) {
    CHECK(find_trials(file, other).empty());
    CHECK_FALSE(tuned_choice(file, other));
  };
  file = store_trials("", first, trials);
  REQUIRE(tuned_choice(file, first));
  TunedKey other = first;
  other.card.driver = "13.1";
  differs(other);
  other = first;
  other.card.version = "0.2.0";
  differs(other);
  other = first;
  other.config += "?";
  differs(other);
  differs(second);
}

TEST_CASE("only what ran within the budget is chosen, the fastest of it") {
  const TunedKey key = key_of("aa", 1600);
  const std::vector<Trial> trials{
      trial_of(1, Outcome::ran, 10, 1000),         trial_of(2, Outcome::ran, 30, 1550),
      trial_of(4, Outcome::ran, 30, 1400),         trial_of(8, Outcome::spilled, 50, 1000),
      trial_of(16, Outcome::out_of_memory, 0, 0),  trial_of(32, Outcome::unsteady, 60, 1000),
      trial_of(64, Outcome::over_budget, 70, 999), trial_of(128, Outcome::ran, 80, 1601)};
  const std::string file = store_trials("", key, trials);
  CHECK(tuned_choice(file, key) == trials[1].choice);
  CHECK_FALSE(tuned_choice(store_trials("", key, {trials[3], trials[4], trials[5], trials[6]}), key));
  CHECK_FALSE(tuned_choice("", key));

  CHECK(tuned_choice(file, key_of("aa", 1540)) == trials[2].choice);  // near, and the faster does not fit
  CHECK(tuned_choice(file, key_of("aa", 1650)) == trials[7].choice);
  CHECK(tuned_choice(file, key_of("aa", 1706)) == trials[7].choice);
  CHECK_FALSE(tuned_choice(file, key_of("aa", 1720)));  // so much more that something else may be faster
  CHECK_FALSE(tuned_choice(file, key_of("aa", 1490)));
  CHECK(find_trials(file, key_of("aa", 1601)).empty());
  const std::string both = store_trials(file, key_of("aa", 1650), {trials[0]});
  CHECK(tuned_choice(both, key_of("aa", 1650)) == trials[0].choice);
  CHECK(tuned_choice(both, key_of("aa", 1640)) == trials[0].choice);
  CHECK(tuned_choice(both, key_of("aa", 1610)) == trials[7].choice);
}

TEST_CASE("damage counts as nothing") {
  const TunedKey key = key_of("aa", 5000);
  const Trial trial = trial_of(1, Outcome::ran, 10, 1000);
  const std::string whole = store_trials("", key, {trial});
  for (const std::string& broken :
       {std::string("{"), std::string("[]"), std::string(R"({"format": 2, "tuned": []})"),
        std::string(R"({"format": 1})"), std::string(R"({"format": 1, "tuned": {}})"),
        std::string(R"({"format": 1, "tuned": [7, {}, {"uuid": "aa"}]})"),
        whole.substr(0, whole.size() / 2)}) {
    CHECK(find_trials(broken, key).empty());
    CHECK_FALSE(tuned_choice(broken, key));
    CHECK(find_trials(store_trials(broken, key, {trial}), key).size() == 1);
  }
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  for (const std::string& text :
       {replaced("\"ffn+qkv\"", "\"most\""), replaced("\"ran\"", "\"walked\""),
        replaced("\"micro_batch\": 1", "\"micro_batch\": 0"), replaced("10.0", "-1.0"),
        replaced("10.0", "null"), replaced("\"note\"", "\"not\""), replaced("4096", "\"4096\"")}) {
    CHECK(find_trials(text, key).empty());
    CHECK_FALSE(tuned_choice(text, key));
  }
  CHECK(find_trials(store_trials("", key, {trial_of(1, Outcome::failed, 0, 0)}), key).size() == 1);
  Trial strange = trial;
  strange.note = "\xFF";  // no UTF-8: what a child may print
  CHECK(find_trials(store_trials("", key, {strange}), key).size() == 1);
}

TEST_CASE("the keys that make another config to tune") {
  const Config base;
  const auto same = [&](const std::vector<std::string>& settings) {
    return tuned_config(parse_config("", "defaults", settings)) == tuned_config(base);
  };
  CHECK(same({}));
  for (const char* setting : {"model.layers=12",          "model.qk_norm=true",
                              "data.context=2048",        "data.document_mask=true",
                              "optim.state=fp32",         "optim.embedding_state=8bit",
                              "optim.master=split",       "optim.min_8bit_size=1",
                              "train.micro_batch=2",      "train.tokens_per_step=131072",
                              "train.deterministic=true", "train.attention=flash",
                              "train.cuda_graphs=off",    "train.tune_kernels=false",
                              "train.eval_every=0",       "train.sample_every=7",
                              "memory.recompute=block",   "memory.loss_chunk=2048",
                              "memory.grad_dtype=fp32",   "memory.attention_workspace=128MiB"}) {
    INFO(setting);
    CHECK_FALSE(same({setting}));
  }
  CHECK_FALSE(same({"train.dtype=fp32", "memory.grad_dtype=fp32"}));
  for (const char* setting :
       {"model.init_std=0.01", "data.train=elsewhere", "optim.lr=1e-3", "train.steps=700", "train.seed=9",
        "train.eval_every=7", "train.save_every=3", "memory.budget=12GiB", "log.every=1"}) {
    INFO(setting);
    CHECK(same({setting}));
  }
  CHECK(tuned_config(base).find('\n') == std::string::npos);
}

}  // namespace
}  // namespace narrowgauge::plan
