// What is measured on a GPU has the right size, and every piece of a measured step is found.
#include <ATen/ops/full.h>

#include <utility>

#include "cuda/launch_delay.h"
#include "lib/bench/attention.h"
#include "lib/bench/calibrate.h"
#include "lib/bench/card_rates.h"
#include "lib/bench/gemm.h"
#include "lib/bench/kernel_cases.h"
#include "lib/bench/kernels.h"
#include "lib/bench/profiler.h"
#include "lib/bench/slow_host.h"
#include "lib/bench/step.h"
#include "lib/bench/tables.h"
#include "lib/bench/timer.h"
#include "lib/bench/trainee.h"
#include "lib/ops/choices.h"
#include "lib/train/card.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"

namespace narrowgauge::bench {
namespace {

Config small_model(const std::string& setting = "train.micro_batch=2") {
  return parse_config("", "test",
                      {"model.layers=2", "model.hidden_size=256", "model.heads=4", "model.ffn_size=512",
                       "model.vocab_size=1000", "data.context=256", "train.tokens_per_step=2048",
                       "train.micro_batch=2", "memory.loss_chunk=512", setting});
}

Machine& machine() {
  static const test::TemporaryFolder cache;
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);  // of chosen algorithms
  static Machine opened(0, false);
  return opened;
}

TEST_CASE("a copy has the rate of a card's memory") {
  const Spread time = time_copy(machine().gpu(), int64_t{64} << 20);
  REQUIRE(time.p20 <= time.median);
  REQUIRE(time.median <= time.p80);
  const double gigabytes_a_second = (64 << 20) / time.median * 1e-3;
  REQUIRE(gigabytes_a_second > 50);
  REQUIRE(gigabytes_a_second < 20000);
}

TEST_CASE("every kernel case runs and has a plausible rate") {
  const Config config = small_model();
  const at::Device device = machine().device();
  std::vector<Measured> cases;
  for (auto& group :
       {norm_cases(device, config.model, 512), elementwise_cases(device, config.model, 512, 256),
        embedding_cases(device, config.model, 512), loss_cases(device, config.model, 512),
        optimizer_cases(device, config, {"stochastic", "split", "fp32"})}) {
    cases.insert(cases.end(), group.begin(), group.end());
  }
  for (const Measured& one : cases) {
    INFO(one.name);
    const Json row = measure_case(machine(), one, 1000);
    REQUIRE(row["median_us"].get<double>() > 0);
    REQUIRE(row["gb_s"].get<double>() < 20000);
  }
}

TEST_CASE("the profiler sees what the device does") {
  const auto events = record_kernels([] {
    for (int i = 0; i < 3; ++i) (void)at::full({1 << 20}, i + 1, at::TensorOptions(machine().device()));
    synchronise(machine().device());
  });
  REQUIRE(events.size() >= 3);
  for (const KernelEvent& event : events) REQUIRE(event.end > event.begin);
}

TEST_CASE("products are measured, and the loss in whole and broken chunks beside its own") {
  const Json result = bench_gemm(machine(), small_model(), {512, 700});
  INFO(result.dump(1));
  for (const Json& run : result["runs"]) {
    const Json& loss = run["loss"];
    REQUIRE(loss["rows"] == run["rows"]);
    REQUIRE(loss["chunk"] == 512);
    for (const char* what : {"loss", "products"}) {
      REQUIRE(loss[what]["p20_us"].get<double>() > 0);
      REQUIRE(loss[what]["p20_us"] <= loss[what]["median_us"]);
      REQUIRE(loss[what]["median_us"] <= loss[what]["p80_us"]);
    }
    REQUIRE(loss["ratio"].get<double>() > 1);  // the cross-entropy comes on top
    REQUIRE((loss["verdict"] == "met") == (loss["ratio"].get<double>() <= 1.15));
  }
  REQUIRE(tables_of(result).size() == 4);
}

TEST_CASE("attention is measured with each kernel, and with every group and plan of cuDNN's") {
  const Json result = bench_attention(machine(), small_model(), {2});
  INFO(result.dump(1));
  const Json& kernels = result["runs"][0]["kernels"];
  REQUIRE(kernels.size() == 4);
  for (const Json& row : kernels) {
    if (row.contains("refused") || row["kernel"] != "cudnn") continue;
    REQUIRE(!row["cudnn"]["groups"].empty());
    REQUIRE(!row["cudnn"]["backward_plans"].empty());
    REQUIRE(!row["cudnn"]["forward_plans"].empty());
  }
  REQUIRE(tables_of(result).size() == 1);
}

// Shapes that keep a card busy.
Config wide_model() {
  return parse_config("", "test",
                      {"model.layers=2", "model.hidden_size=1024", "model.heads=8", "model.ffn_size=4096",
                       "model.vocab_size=16384", "data.context=2048", "train.tokens_per_step=4096"});
}

TEST_CASE("a calibration answers every probe, and leaves nothing behind") {
  for (const char* setting : {"train.deterministic=auto", "train.deterministic=false",
                              "train.tune_kernels=false", "train.attention=flash", "train.dtype=fp32"}) {
    INFO(setting);
    const Config config = small_model(setting);
    const std::vector<plan::Probe> wanted = wanted_probes(config);
    const auto points = calibrate(machine().compute(), config, wanted, machine().timing_bytes());
    REQUIRE(points.size() == wanted.size());
    for (size_t i = 0; i < points.size(); ++i) {
      REQUIRE(points[i].probe == wanted[i]);
      REQUIRE(points[i].seconds > 0);
      REQUIRE(points[i].seconds < 1);
    }
    REQUIRE(ops::choices().to_json().empty());
  }
  train::set_numerics(false);
}

TEST_CASE("calibrated rates are near the card's limits") {
  const Config config = wide_model();
  const plan::Card card = train::card_of(machine().compute());
  const plan::Roofline roofline(card, false);
  for (const auto& point :
       calibrate(machine().compute(), config, wanted_probes(config), machine().timing_bytes())) {
    INFO(plan::work_name(point.probe.work) << " of " << point.probe.rows << " rows: " << 1e6 * point.seconds
                                           << " us, roofline " << 1e6 * roofline.seconds(point.probe));
    const double ratio = point.seconds / roofline.seconds(point.probe);
    const double most = point.probe.work == plan::Work::launch ? 10 : 3;
    CHECK(ratio > 1 / most);
    CHECK(ratio < most);
  }
  train::set_numerics(false);
}

TEST_CASE("what does not fit is left out of a calibration") {
  const std::vector<plan::Probe> probes{
      {.work = plan::Work::traffic, .rows = int64_t{1} << 26, .shape = {}},
      {.work = plan::Work::traffic, .rows = int64_t{1} << 45, .shape = {}},
      {.work = plan::Work::attention, .rows = 1, .shape = {256, 4, 4, 100}}};
  Config config = small_model();
  config.train.attention = "flash";  // no kernel of it takes that head size
  const auto points = calibrate(machine().compute(), config, probes, machine().timing_bytes());
  REQUIRE(points.size() == 1);
  REQUIRE(points[0].probe == probes[0]);
  train::set_numerics(false);
}

TEST_CASE("rates of this card are measured once") {
  const Config config = small_model();
  const plan::Card card = train::card_of(machine().compute());
  REQUIRE(card_rates(machine().compute(), config, card, /*measure=*/false).estimated());
  const plan::Rates rates = card_rates(machine().compute(), config, card, /*measure=*/true);
  const plan::Rates again = card_rates(machine().compute(), config, card, /*measure=*/false);
  REQUIRE_FALSE(again.estimated());
  for (const plan::Probe& probe : wanted_probes(config))
    REQUIRE(rates.seconds(probe) == again.seconds(probe));
  train::set_numerics(false);
}

TEST_CASE("a card that is not in the table is as its driver describes it") {
  train::ComputeDevice unknown = machine().compute();
  const plan::Card known = train::card_of(unknown);
  unknown.name = "NVIDIA Unheard Of";
  const plan::Card card = train::card_of(unknown);
  CHECK(card.name == "Unheard Of");
  CHECK(card.sm_count == known.sm_count);
  CHECK(card.compute_major == known.compute_major);
  CHECK(card.gibibytes == Approx(known.gibibytes).epsilon(0.1));
  CHECK(card.teraflops > known.teraflops / 3);
  CHECK(card.teraflops < known.teraflops * 3);
  CHECK(card.gigabytes_per_second == Approx(known.gigabytes_per_second).epsilon(0.3));
}

TEST_CASE("a small model's step, its breakdown and its wall") {
  for (const char* graphs : {"off", "on"}) {
    Config config = small_model();
    config.train.cuda_graphs = graphs;
    const Json result = bench_step(machine(), config, {.steps = 3, .warmup = 3});
    INFO(result.dump(1));
    REQUIRE(result["step"]["tokens_per_second"]["median"].get<double>() > 0);
    REQUIRE(result["step"]["skipped"] == 0);
    REQUIRE(result["step"]["spilled_bytes"] == 0);
    const Json& breakdown = result["breakdown"];
    REQUIRE(breakdown["busy_ms"].get<double>() > 0);
    REQUIRE(breakdown["gaps_ms"].get<double>() >= 0);
    for (const char* category :
         {"GEMM", "attention", "norm, RoPE, SwiGLU", "loss", "embedding", "optimizer"}) {
      INFO(category);
      REQUIRE(breakdown["categories_ms"][category].get<double>() > 0);
    }
    REQUIRE(result["wall"]["tokens_per_second"].get<double>() > 0);
    REQUIRE(tables_of(result, 30).size() == 4);
  }
}

TEST_CASE("a slow host pays for nearly every launch of a step, and once for a graph") {
  constexpr int64_t kPieces = 4;  // micro-batches of a step of small_model
  const auto count = [&](const char* graphs) {
    Config config = small_model();
    config.train.cuda_graphs = graphs;
    Trainee trainee(machine(), config);
    for (int i = 0; i < 3; ++i) trainee.run_step();  // everything is captured now
    synchronise(machine().device());
    const SlowHost host(0.01);
    trainee.run_step();
    synchronise(machine().device());
    const int64_t delayed = cuda::delayed_launches();
    const auto events = record_kernels([&] {
      trainee.run_step();
      synchronise(machine().device());
    });
    return std::pair(delayed, static_cast<int64_t>(events.size()));
  };
  const auto [single, done] = count("off");
  const auto [graphs, done_by_graphs] = count("on");
  CAPTURE(single, done, graphs, done_by_graphs);
  CHECK(single <= done);             // each delay stands for a kernel, copy or fill that the device did
  CHECK(single >= done * 3 / 5);     // the others: second kernels of a product or of attention's backward
  CHECK(graphs >= 2 * kPieces + 1);  // a copy and a graph each, and the update
  CHECK(graphs <= 2 * kPieces + 12);
  CHECK(done_by_graphs >= 3 * graphs);
}

}  // namespace
}  // namespace narrowgauge::bench
