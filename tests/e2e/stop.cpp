// How training runs end before their time: signals, save requests, locks, errors.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>

#include "tests/e2e/workshop.h"
#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace {

namespace fs = std::filesystem;

void wait_for_start(const fs::path& run) {
  for (int i = 0; i < 3000 && rows(run, "start").empty(); ++i) ::usleep(20000);
}

// SIGTERM, and what the program says then; it must end within so many seconds.
Outcome terminate(Program& program, double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  program.signal(SIGTERM);
  Outcome outcome = program.wait();
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds);
  return outcome;
}

int64_t saved_step(const fs::path& run) { return rows(run, "checkpoint").back().at("step"); }

TEST_CASE("signals, a save request and the lock") {
  const Workshop& shop = workshop();
  const Words endless = {"train.steps=1000000", "train.save_every=0", "train.eval_every=0"};
  Program program(shop.train("signal", endless));
  REQUIRE(wait_for_step(shop.path("signal"), 3));
  require_user_error(run(shop.train("signal", endless, {"--resume", "auto"})), {"signal"});
  write_text(shop.path("signal/save"), "");
  for (int i = 0; i < 500 && rows(shop.path("signal"), "checkpoint").empty(); ++i) {
    REQUIRE(wait_for_step(shop.path("signal"), 4 + i));
  }
  REQUIRE(rows(shop.path("signal"), "checkpoint").size() == 1);
  REQUIRE_FALSE(fs::exists(shop.path("signal/save")));
  program.signal(SIGINT);
  const Outcome outcome = program.wait();
  REQUIRE(outcome.exit_code == 0);
  REQUIRE(stop_reason(shop.path("signal")) == "SIGINT");
  const int64_t step = rows(shop.path("signal"), "step").back().at("step");
  REQUIRE(rows(shop.path("signal"), "checkpoint").back().at("step") == step);
}

TEST_CASE("a stop that may not wait drops the step's gradients") {
  const Workshop& shop = workshop();
  const Words slow = {"train.steps=3", "train.tokens_per_step=16384", "train.micro_batch=1",
                      "train.stop_grace=0"};
  Program program(shop.train("grace", slow, {"--set", "optim.warmup_steps=1"}));
  wait_for_start(shop.path("grace"));
  program.signal(SIGTERM);
  const Outcome outcome = program.wait();
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE(outcome.err.find("dropped") != std::string::npos);
  REQUIRE(saved_step(shop.path("grace")) == 0);
  run_well(shop.train("grace", slow, {"--set", "optim.warmup_steps=1", "--resume", "auto"}));
  REQUIRE(rows(shop.path("grace"), "step").size() == 3);
}

TEST_CASE("a second signal exits at once") {
  const Workshop& shop = workshop();
  Program program(
      shop.train("twice", {"train.tokens_per_step=262144", "train.micro_batch=1", "train.stop_grace=1000"}));
  wait_for_start(shop.path("twice"));
  program.signal(SIGINT);
  ::usleep(200000);
  program.signal(SIGINT);
  REQUIRE(program.wait().exit_code == 128 + SIGINT);
  REQUIRE(rows(shop.path("twice"), "checkpoint").empty());
}

TEST_CASE("gradients that are never finite stop the run with a checkpoint and valid rows") {
  const Workshop& shop = workshop();
  const Outcome outcome =
      run(shop.train("diverged", {"optim.lr=1e30", "optim.warmup_steps=0", "optim.max_skips=3",
                                  "train.steps=50", "train.eval_every=0"}));
  require_user_error(outcome, {"optim.max_skips", "3", "optim.lr"});
  REQUIRE(outcome.err.find("not finite") != std::string::npos);
  const auto steps = rows(shop.path("diverged"), "step");
  REQUIRE(steps.back().at("grad_norm").is_null());
  REQUIRE(steps.back().at("skipped") >= 3);
  REQUIRE(rows(shop.path("diverged"), "checkpoint").back().at("step") == steps.back().at("step"));
  REQUIRE(stop_reason(shop.path("diverged")) == "optim.max_skips");
}

TEST_CASE("a stop does not wait for a long micro-batch") {
  const Workshop& shop = workshop();
  // One micro-batch a step, of many seconds.
  const Words slow = {"train.steps=1",       "train.tokens_per_step=131072", "train.micro_batch=4096",
                      "model.layers=8",      "train.stop_grace=1",           "train.eval_every=0",
                      "optim.warmup_steps=0"};
  Program program(shop.train("long-batch", slow));
  wait_for_start(shop.path("long-batch"));
  ::usleep(500000);
  REQUIRE(terminate(program, 10).err.find("dropped") != std::string::npos);
  REQUIRE(saved_step(shop.path("long-batch")) == 0);
  REQUIRE(stop_reason(shop.path("long-batch")) == "SIGTERM");
  REQUIRE(rows(shop.path("long-batch"), "step").empty());
  run_well(shop.train("long-batch", slow, {"--resume", "auto"}));
  REQUIRE(rows(shop.path("long-batch"), "step").size() == 1);
}

TEST_CASE("a stop does not wait for a long evaluation") {
  const Workshop& shop = workshop();
  const Words settings = {"model.layers=8",           "model.hidden_size=256",
                          "model.ffn_size=512",       "train.tokens_per_step=128",
                          "train.stop_grace=1",       "data.val=" + shop.text("data"),
                          "train.eval_tokens=1000000"};
  Words evaluating = settings;
  evaluating.emplace_back("train.eval_every=1");
  Program program(shop.train("long-eval", evaluating));
  REQUIRE(wait_for_step(shop.path("long-eval"), 1));
  ::usleep(500000);
  REQUIRE(terminate(program, 10).err.find("evaluation takes longer") != std::string::npos);
  REQUIRE(rows(shop.path("long-eval"), "eval").empty());
  REQUIRE(saved_step(shop.path("long-eval")) == 1);
  REQUIRE(stop_reason(shop.path("long-eval")) == "SIGTERM");
  Words going_on = settings;
  going_on.insert(going_on.end(), {"train.eval_every=0", "train.steps=4"});
  run_well(shop.train("long-eval", going_on, {"--resume", "auto"}));
  REQUIRE(rows(shop.path("long-eval"), "step").size() == 4);
}

// A run whose data goes bad once it has begun: token 4000 becomes 4095, beyond the vocabulary.
Outcome run_into_bad_data(const std::string& name, uint64_t file_limit) {
  const Workshop& shop = workshop();
  const fs::path data = shop.path(name + ".bin");
  write_text(data, std::string(20000, '\1'));  // every id is 257
  Program program(
      shop.train(name, {"data.train=" + data.string(), "train.steps=100000", "train.tokens_per_step=4096",
                        "train.micro_batch=128", "train.save_every=0", "train.eval_every=0"}),
      file_limit);
  REQUIRE(wait_for_step(shop.path(name), 2));
  std::fstream(data, std::ios::in | std::ios::out | std::ios::binary).seekp(8000).write("\xFF\x0F", 2);
  return program.wait();
}

TEST_CASE("an error in the middle of a run leaves a checkpoint of the last finished step") {
  const Workshop& shop = workshop();
  require_user_error(run_into_bad_data("late", 0), {"late.bin", "4095", "259"});
  const int64_t step = rows(shop.path("late"), "step").back().at("step");
  REQUIRE(saved_step(shop.path("late")) == step);
  REQUIRE(rows(shop.path("late"), "step").size() == static_cast<size_t>(step));
  REQUIRE(stop_reason(shop.path("late")).find("4095") != std::string::npos);
  run_well({"sample", shop.text("late"), "--prompt", "1 2", "--tokens", "3"});
}

TEST_CASE("an error whose checkpoint cannot be written names both") {
  require_user_error(run_into_bad_data("late-full", 60000), {"late-full.bin", "4095", "safetensors"});
  REQUIRE(rows(workshop().path("late-full"), "checkpoint").empty());
}

}  // namespace
}  // namespace narrowgauge::test
