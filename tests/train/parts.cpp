// The pieces of training that need no tensor: throughput, progress lines, signals.
#include <ATen/Context.h>

#include <cmath>
#include <csignal>

#include "lib/base/error.h"
#include "lib/base/interruption.h"
#include "lib/ops/choices.h"
#include "lib/train/determinism.h"
#include "lib/train/metrics.h"
#include "lib/train/progress.h"
#include "lib/train/signals.h"
#include "lib/train/text_stream.h"
#include "tests/support/catch.h"

namespace narrowgauge::train {
namespace {

TEST_CASE("throughput is that of a sliding window") {
  Throughput throughput(2);
  REQUIRE_FALSE(throughput.tokens_per_second());
  throughput.restart(10);
  REQUIRE_FALSE(throughput.tokens_per_second());
  throughput.add(20, 100);
  REQUIRE(throughput.tokens_per_second() == 10.0);
  throughput.add(21, 100);
  throughput.add(22, 100);
  REQUIRE(throughput.tokens_per_second() == 100.0);
  REQUIRE(throughput.seconds_per_step() == 1.0);
  throughput.restart(50);
  REQUIRE_FALSE(throughput.seconds_per_step());
}

TEST_CASE("a progress line leaves out what is unknown") {
  StepReport report;
  report.step = 7;
  report.loss = 3.25;
  report.learning_rate = 3e-4;
  report.grad_norm = 0.5;
  REQUIRE(progress_line(report, 10, 0, -1) == "step 7/10  loss 3.2500  lr 3.00e-04  norm 0.50");
  report.tokens_per_second = 52400;
  report.mfu = 0.412;
  report.skipped = 2;
  REQUIRE(progress_line(report, 10, int64_t{1} << 30, 65) ==
          "step 7/10  loss 3.2500  lr 3.00e-04  norm 0.50  52.4K tok/s  MFU 41.2%  mem 1.0 GiB  ETA 1m05s  "
          "skipped 2");
}

TEST_CASE("plain progress: the first, every n-th and the last step") {
  LogConfig config;
  config.every = 4;
  config.progress = "plain";
  Progress progress(config, 10);
  REQUIRE(progress.due(1, 0));
  progress.show("first", 0);
  REQUIRE_FALSE(progress.due(2, 100));
  REQUIRE(progress.due(4, 100));
  REQUIRE(progress.due(10, 100));
}

TEST_CASE("a signal is a stop request, and the old handler comes back") {
  static volatile std::sig_atomic_t outer = 0;
  std::signal(SIGTERM, [](int) { outer = outer + 1; });
  {
    const StopSignals signals(1000);
    REQUIRE_FALSE(signals.requested());
    REQUIRE(std::isinf(seconds_to_interruption()));
    std::raise(SIGTERM);
    REQUIRE(signals.requested());
    REQUIRE(seconds_to_interruption() > 900);
    REQUIRE(seconds_to_interruption() <= 1000);
    REQUIRE_NOTHROW(interruption_point());
    REQUIRE(std::string(signals.name()) == "SIGTERM");
    REQUIRE(outer == 0);
  }
  std::raise(SIGTERM);
  REQUIRE(outer == 1);
  std::signal(SIGTERM, SIG_DFL);
  REQUIRE(std::isinf(seconds_to_interruption()));
}

TEST_CASE("a stop request interrupts once its grace is over, until it is withdrawn") {
  request_interruption(1e300);
  REQUIRE_NOTHROW(interruption_point());
  request_interruption(0);
  REQUIRE_THROWS_AS(interruption_point(), Interrupted);
  REQUIRE(seconds_to_interruption() <= 0);
  withdraw_interruption();
  REQUIRE_NOTHROW(interruption_point());
}

TEST_CASE("prompts are text, or ids without a tokenizer") {
  const auto bytes = data::make_tokenizer("byte");
  REQUIRE(prompt_tokens("ab", bytes.get(), 259, -1).size() >= 2);
  REQUIRE(prompt_tokens("3, 1 4", nullptr, 5, -1) == std::vector<int32_t>{3, 1, 4});
  REQUIRE(prompt_tokens("", nullptr, 5, 2) == std::vector<int32_t>{2});
  REQUIRE(prompt_tokens("", nullptr, 5, -1) == std::vector<int32_t>{0});
  REQUIRE_THROWS_AS(prompt_tokens("3 5", nullptr, 5, -1), UserError);
  REQUIRE_THROWS_AS(prompt_tokens("three", nullptr, 5, -1), UserError);
  TextStream ids(nullptr);
  REQUIRE(ids.push(7) + ids.push(8) + ids.finish() == "7 8 ");
}

TEST_CASE("determinism is on where its price is small and its scratch fits") {
  const auto decide = [](double extra_ms, int64_t scratch) {
    return decide_determinism(
        {.extra_ms = extra_ms, .micro_batch_ms = 100, .extra_bytes = scratch, .free_bytes = 1000});
  };
  CHECK(decide(2.96, 1000).on);
  CHECK(decide(2.96, 1000).why == "auto: it costs at most 3.0 % of a step");
  CHECK(decide(-1, 0).on);  // the deterministic kernel was no slower
  CHECK(decide(-1, 0).why == "auto: it costs nothing here");
  CHECK_FALSE(decide(3.1, 0).on);
  CHECK(decide(7.44, 0).why == "auto: it would cost up to 7.4 % of a step, more than 3 %");
  CHECK_FALSE(decide(1, 1001).on);
  CHECK(decide(1, int64_t{544} << 20).why == "auto: its 544.0 MiB of scratch do not fit beside this plan");
  const double nan = std::nan("");
  CHECK_FALSE(decide(nan, 0).on);
}

TEST_CASE("determinism without times of the matrix products is compared with what was timed") {
  const auto decide = [](double extra_ms, double timed_ms) {
    return decide_determinism({.extra_ms = extra_ms,
                               .micro_batch_ms = timed_ms,
                               .extra_bytes = 0,
                               .free_bytes = 0,
                               .products = false});
  };
  CHECK(decide(2.5, 100).on);
  CHECK(decide(8, 100).why ==
        "auto: it would cost up to 8.0 % of attention, all that was timed, more than 3 %");
  CHECK(decide(8, 0).why == "auto: its price is not known without train.tune_kernels");
  CHECK(decide(0, 0).on);
}

TEST_CASE("a resumed run is deterministic if it was, however its steps are cut, and nothing is timed") {
  const ComputeDevice gpu{.device = at::Device(at::kCUDA, 0), .name = "none", .driver = "", .total_bytes = 0};
  Config config;
  config.train.micro_batch = 1;
  config.memory.recompute = {RecomputeLevel::none};
  const auto resolve = [&] { return resolve_determinism(config, gpu, 0, 0); };
  ops::choices().clear();
  config.train.deterministic = "true";
  CHECK(resolve().on);  // remembered for a resume that says auto
  config.train.deterministic = "auto";
  CHECK(resolve().on);
  const nlohmann::json saved = ops::choices().to_json();
  for (const bool on : {true, false}) {
    ops::choices().clear();
    ops::choices().load_json({{determinism_key(config), on}});
    config.train.micro_batch = on ? 4 : 1;
    config.memory.loss_chunk = on ? 1024 : 4096;
    CHECK(resolve().on == on);
    CHECK(resolve().why == "auto: as the checkpoint was");
    CHECK(known_determinism(config, gpu) == on);
    CHECK(at::globalContext().deterministicAlgorithms() == on);
    CHECK(ops::choices().news().empty());
  }
  config.train.deterministic = "true";  // has the last word, and is kept from then on
  CHECK(resolve().on);
  CHECK(ops::choices().to_json() == saved);
  config.data.document_mask = true;
  CHECK_FALSE(ops::choices().find(determinism_key(config)));
  config.train.deterministic = "auto";
  CHECK_FALSE(known_determinism(config, gpu));
  config.train.dtype = "fp32";
  CHECK(resolve().on);
  CHECK(resolve().why == "auto: it costs nothing here");
  ops::choices().clear();
  set_numerics(false);
}

TEST_CASE("determinism costs nothing on the CPU, and the config has the last word") {
  Config config;
  const ComputeDevice cpu;
  CHECK(config.train.deterministic == "auto");
  CHECK(resolve_determinism(config, cpu, 0, 0).on);
  CHECK(resolve_determinism(config, cpu, 0, 0).why == "auto: it costs nothing here");
  config.train.deterministic = "false";
  CHECK_FALSE(resolve_determinism(config, cpu, 0, 0).on);
  CHECK(resolve_determinism(config, cpu, 0, 0).why.empty());
}

}  // namespace
}  // namespace narrowgauge::train
