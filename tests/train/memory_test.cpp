// A run that keeps to a memory budget, and what it does when memory is taken from it. On the CPU, where the
// budget counts tensors alone.
#include <c10/util/Exception.h>

#include <chrono>
#include <thread>

#include "lib/base/error.h"
#include "lib/plan/plan.h"
#include "lib/train/checkpoint.h"
#include "lib/train/evaluate.h"
#include "lib/train/trainer.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/train/runs.h"

namespace narrowgauge::test {
namespace {

namespace fs = std::filesystem;

class MemoryRuns {
 public:
  MemoryRuns() : corpus_(write_corpus(folder_.path())) {}

  // Four layers, what is kept is auto.
  [[nodiscard]] Config config() const {
    Config config = byte_config(corpus_, "cpu", "fp32", 4, 64, 32);
    config.data.val_fraction = 0.05;
    config.train.micro_batch = 4;
    config.train.steps = 6;
    config.train.save_every = 3;
    config.train.eval_every = 0;
    config.memory.recompute.clear();
    config.memory.loss_chunk = 64;
    config.memory.budget = bytes(RecomputeLevel::none, config);
    return config;
  }
  // With every layer at that level.
  static int64_t bytes(RecomputeLevel level, const Config& config) {
    plan::Surroundings around;
    around.evaluation_sequences = train::evaluation_windows(config.data.context);
    return plan::MemoryModel(config, around)
        .bytes({.micro_batch = config.train.micro_batch,
                .levels = std::vector(static_cast<size_t>(config.model.layers), level),
                .loss_chunk = config.memory.loss_chunk});
  }
  fs::path run(const char* name, train::TrainRequest request) const {
    request.run = folder_ / name;
    train::train(request);
    return request.run;
  }
  [[nodiscard]] fs::path path(const char* name) const { return folder_ / name; }

 private:
  TemporaryFolder folder_;
  std::string corpus_;
};

// What a run of that request throws.
std::string error_of(const MemoryRuns& runs, const char* name, const train::TrainRequest& request) {
  try {
    runs.run(name, request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Fails `times` tries of step 4.
std::function<void(int64_t)> failing(int times) {
  return [left = times](int64_t step) mutable {
    if (step == 4 && left-- > 0)
      throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "Tried to allocate 20 MiB");
  };
}

const char* const kEverything = "4 x none";

}  // namespace

TEST_CASE("a run follows its plan, and rehearses without leaving a trace") {
  const MemoryRuns runs;
  Config config = runs.config();
  config.train.eval_every = 3;
  config.train.eval_tokens = 64;
  config.train.sample_every = 3;
  config.train.sample_tokens = 4;
  config.memory.budget *= 10;
  const fs::path planned = runs.run("planned", {.config = config, .run = {}, .resume = ""});
  const auto plans = rows(planned, "plan");
  REQUIRE(plans.size() == 1);
  CHECK(plans[0]["recompute"] == kEverything);
  CHECK(!fs::exists(planned / "rehearsal"));

  config.memory.plan = "off";
  config.memory.recompute = {RecomputeLevel::none};
  const fs::path plain = runs.run("plain", {.config = config, .run = {}, .resume = ""});
  CHECK(rows(plain, "plan").empty());
  require_same_losses(planned, plain);

  // Less memory, the same bits.
  Config tight = runs.config();
  tight.memory.budget =
      (MemoryRuns::bytes(RecomputeLevel::none, tight) + MemoryRuns::bytes(RecomputeLevel::block, tight)) / 2;
  const fs::path mixed = runs.run("mixed", {.config = tight, .run = {}, .resume = ""});
  CHECK(rows(mixed, "plan")[0]["recompute"] != kEverything);
  require_same_losses(mixed, plain);

  // A resume keeps what it had although more would fit now.
  const auto before = rows(mixed, "plan")[0]["recompute"];
  Config longer = runs.config();
  longer.train.steps = 7;
  const fs::path resumed = runs.run("mixed", {.config = longer, .run = {}, .resume = "auto"});
  CHECK(rows(resumed, "plan").back()["recompute"] == before);
}

TEST_CASE("nothing fits: what is missing is said before anything is written") {
  const MemoryRuns runs;
  Config config = runs.config();
  config.memory.budget = 100000;
  const std::string error = error_of(runs, "nothing", {.config = config, .run = {}, .resume = ""});
  CHECK(has(error, "nothing fits"));
  CHECK(has(error, "a budget of"));
}

TEST_CASE("a step that memory is not enough for is tried again, then with less") {
  const MemoryRuns runs;
  const Config config = runs.config();
  const fs::path whole = runs.run("whole", {.config = config, .run = {}, .resume = ""});

  train::TrainRequest once{.config = config, .run = {}, .resume = ""};
  once.before_step = failing(1);
  const fs::path again = runs.run("again", once);
  require_same_losses(again, whole);
  CHECK(rows(again, "plan").size() == 1);

  train::TrainRequest twice{.config = config, .run = {}, .resume = ""};
  twice.before_step = failing(3);
  const fs::path smaller = runs.run("smaller", twice);
  require_same_losses(smaller, whole);  // other levels, the same micro-batch: the same bits
  const auto plans = rows(smaller, "plan");
  REQUIRE(plans.size() == 3);
  CHECK(plans[1]["bytes"] < plans[0]["bytes"]);
  CHECK(plans[2]["bytes"] < plans[1]["bytes"]);
  const Config saved = train::CheckpointStore(smaller).read_state(6).config;
  CHECK(plan::levels_text(plan::fixed_levels(saved)) == plans[2]["recompute"]);
}

TEST_CASE("when no plan is left, the run saves and ends with the remedy") {
  const MemoryRuns runs;
  train::TrainRequest request{.config = runs.config(), .run = {}, .resume = ""};
  request.before_step = failing(1 << 20);
  const std::string error = error_of(runs, "ends", request);
  CHECK(has(error, "step 4"));
  CHECK(has(error, "no smaller plan is left"));
  CHECK(has(error, "a budget of"));
  CHECK(train::CheckpointStore(runs.path("ends")).newest() == 3);

  request.config.memory.plan = "off";
  request.config.memory.recompute = {RecomputeLevel::none};
  request.before_step = failing(1 << 20);
  CHECK(has(error_of(runs, "off", request), "set memory.plan to auto"));
  CHECK(train::CheckpointStore(runs.path("off")).newest() == 3);
}

TEST_CASE("a spill is named, and the run goes on with less") {
  const MemoryRuns runs;
  Config config = runs.config();
  config.train.steps = 24;
  config.train.save_every = 0;
  const fs::path whole = runs.run("whole", {.config = config, .run = {}, .resume = ""});

  bool spills = false;
  bool taken = false;  // by another program
  train::TrainRequest request{.config = config, .run = {}, .resume = ""};
  request.before_step = [&](int64_t step) {
    taken = step >= 14 && step < 20;
    std::this_thread::sleep_for(std::chrono::milliseconds(taken ? 400 : 50));
  };
  request.probe = [&] {
    train::CopySpeeds speeds{.bytes_per_second = std::vector(10, 1e12), .piece_bytes = 1000};
    if (taken && spills) speeds.bytes_per_second[7] = 1e10;
    return speeds;
  };
  CHECK(rows(runs.run("busy", request), "plan").size() == 1);  // slow, but everything is where it belongs

  spills = true;
  const fs::path spilled = runs.run("spilled", request);
  CHECK(rows(spilled, "plan").size() >= 2);
  CHECK(rows(spilled, "plan").back()["bytes"] < rows(spilled, "plan").front()["bytes"]);
  require_same_losses(spilled, whole);
}

}  // namespace narrowgauge::test
