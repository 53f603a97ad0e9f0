// The parts of bench that need no GPU: statistics, tables, targets, the classes of kernels, least traffic,
// the slow host.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>

#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "cuda/error.h"
#include "cuda/launch_delay.h"
#include "lib/bench/attention_pass.h"
#include "lib/bench/breakdown.h"
#include "lib/bench/kernels.h"
#include "lib/bench/products.h"
#include "lib/bench/slow_host.h"
#include "lib/bench/stats.h"
#include "lib/bench/table.h"
#include "lib/bench/tables.h"
#include "lib/bench/targets.h"
#include "lib/bench/traffic.h"
#include "tests/support/catch.h"

namespace narrowgauge::bench {
namespace {

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

TEST_CASE("percentiles lie between neighbours") {
  REQUIRE(percentile({3, 1, 2}, 0.5) == 2);
  REQUIRE(percentile({1, 2, 3, 4}, 0.5) == 2.5);
  REQUIRE(percentile({7}, 0.8) == 7);
  REQUIRE(near(percentile({0, 10}, 0.2), 2));
  REQUIRE_THROWS_AS(percentile({}, 0.5), std::invalid_argument);
  const Spread s = spread({10, 20, 30, 40, 50, 60});
  REQUIRE(s.p20 == 20);
  REQUIRE(s.median == 35);
  REQUIRE(s.p80 == 50);
}

TEST_CASE("a table as text and as Markdown") {
  const Table table{.title = "Kernels",
                    .columns = {"name", "µs"},
                    .rows = {{"norm", "12.5"}, {"a|b", "3.0"}, {"short"}},
                    .notes = {"One run."}};
  REQUIRE(to_text(table) ==
          "Kernels\n"
          "name     µs\n"
          "norm   12.5\n"
          "a|b     3.0\n"
          "short\n"
          "One run.\n");
  REQUIRE(to_markdown(table) ==
          "**Kernels**\n\n"
          "| name | µs |\n"
          "|---|---:|\n"
          "| norm | 12.5 |\n"
          "| a\\|b | 3.0 |\n"
          "| short |  |\n"
          "\nOne run.\n");
}

TEST_CASE("targets") {
  REQUIRE_FALSE(find_target("scale"));
  REQUIRE(verdict(find_target("scale"), 0.1, 100).empty());
  const auto norm = find_target("rms_norm_backward");
  REQUIRE(target_text(norm) == ">= 82 %");
  REQUIRE(verdict(norm, 0.82, 0) == "met");
  REQUIRE(verdict(norm, 0.8199, 0) == "missed");
  const auto adamw = find_target("adamw_split");
  REQUIRE(target_text(adamw) == "<= 4.0 ms");
  REQUIRE(verdict(adamw, 0, 3.9) == "met");
  REQUIRE(verdict(adamw, 0, 4.1) == "missed");
}

TEST_CASE("kernels are classed by their names") {
  const std::string ours = "void narrowgauge::cuda::(anonymous namespace)::";
  const auto is = [](const std::string& name, Category category) {
    INFO(name);
    REQUIRE(category_name(classify(name)) == std::string(category_name(category)));
  };
  is(ours +
         "rms_norm_backward_kernel<__nv_bfloat16, 7>(narrowgauge::cuda::RmsNormBackward<__nv_bfloat16>, int)",
     Category::elementwise);
  is(ours + "add_partials_kernel(float*, float const*, long, int, int)", Category::elementwise);
  is(ours + "rope_kernel<__nv_bfloat16, true, false>(narrowgauge::cuda::Rope<__nv_bfloat16>)",
     Category::elementwise);
  is(ours + "resident_kernel<__nv_bfloat16, 4>(narrowgauge::cuda::CrossEntropy<__nv_bfloat16>)",
     Category::loss);
  is(ours + "backward_kernel<__nv_bfloat16, 8>(narrowgauge::cuda::EmbeddingBackward<__nv_bfloat16>)",
     Category::embedding);
  is(ours + "adamw_kernel<__nv_bfloat16, __nv_bfloat16>(...)", Category::optimizer);
  is(ours + "finish_kernel(narrowgauge::cuda::FinishGradientNorm)", Category::optimizer);
  is("nvjet_tst_192x192_64x4_2x1_v_bz_coopA_TNT", Category::gemm);
  is("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>()", Category::gemm);
  is("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, "
     "cutlass::bfloat16_t>>",
     Category::attention);
  is("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3i", Category::attention);
  is("Memcpy DtoD (Device -> Device)", Category::other);
  is("Memset (Device)", Category::other);
  is("void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>", Category::other);
}

TEST_CASE("a breakdown counts overlapping work once and finds the gaps") {
  const Breakdown b = break_down({{"nvjet_a", 4'000'000, 6'000'000},
                                  {"nvjet_a", 0, 1'000'000},
                                  {"Memset (Device)", 5'000'000, 7'000'000},
                                  {"adamw_kernel", 9'000'000, 10'000'000}});
  REQUIRE(near(b.span, 10));
  REQUIRE(near(b.busy, 5));
  REQUIRE(near(b.gaps(), 5));
  REQUIRE(near(b.milliseconds[static_cast<size_t>(Category::gemm)], 3));
  REQUIRE(near(b.milliseconds[static_cast<size_t>(Category::other)], 2));
  REQUIRE(b.kernels.size() == 3);
  REQUIRE(b.kernels[0].name == "nvjet_a");
  REQUIRE(b.kernels[0].count == 2);
  REQUIRE(break_down({}).span == 0);
}

TEST_CASE("a slow host pays for LibTorch's copies and fills, on any thread and no longer than it lives") {
  const at::Tensor x = at::ones({1 << 18});
  const at::Tensor y = at::empty_like(x);
  const auto launches = [&] {
    const int64_t before = cuda::delayed_launches();
    y.copy_(x);
    y.fill_(2);
    y.zero_();  // so large that it is a fill
    (void)y.narrow(0, 0, 7).view({7, 1});
    return cuda::delayed_launches() - before;
  };
  REQUIRE(launches() == 0);
  {
    const SlowHost host(100);
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(launches() == 3);
    REQUIRE(std::chrono::steady_clock::now() - begin >= std::chrono::microseconds(300));
    int64_t elsewhere = 0;
    std::thread([&] { elsewhere = launches(); }).join();
    REQUIRE(elsewhere == 3);
  }
  REQUIRE(launches() == 0);
  {
    const SlowHost fast(0);
    REQUIRE(launches() == 0);
  }
  REQUIRE_THROWS_AS(SlowHost(-1), cuda::LaunchError);
  REQUIRE(launches() == 0);
}

TEST_CASE("what is measured of products and attention runs on a CPU too") {
  const at::Device cpu(at::kCPU);
  const ops::LinearShape shape{.rows = 6, .in = 16, .out = 10, .y_stride = 16, .grad_dtype = at::kFloat};
  const int64_t xyw = 2 * (6 * 16 + 6 * 10 + 10 * 16);
  for (const Direction direction : kDirections) {
    const Prepared prepared = prepare_product(cpu, shape, direction);
    CHECK(prepared.footprint == xyw + (direction == Direction::weight_grad ? 2 * 10 * 16 : 0));
    REQUIRE_NOTHROW(prepared.launch());
  }
  const ops::Attention attention{
      .shape = {.batch = 2, .context = 32, .heads = 4, .kv_heads = 2, .head_dim = 8},
      .kernel = ops::AttentionKernel::flash};
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    for (const bool forward : {true, false}) {
      const Prepared prepared = prepare_attention(cpu, attention, dtype, forward);
      CHECK(prepared.footprint > 0);
      REQUIRE_NOTHROW(prepared.launch());
    }
  }
  const Prepared copy = prepare_copy(cpu, 4096);
  CHECK(copy.footprint == 4096);
  REQUIRE_NOTHROW(copy.launch());
}

TEST_CASE("least traffic of the 977M model is 3.9 MB a token") {
  const ModelConfig model;  // the defaults are that model
  REQUIRE(near(least_traffic(model), 24.0 * (32 * 1792 + 8 * 3584 + 16 * 4736) + 28 * 1792));
  REQUIRE(std::abs(least_traffic(model) - 3.9e6) < 0.1e6);
}

TEST_CASE("results become tables") {
  const auto gemm =
      nlohmann::ordered_json::parse(R"({"bench": "gemm", "device": "card", "runs": [{"rows": 4096,
    "us_per_token": 7.9, "products": [{"name": "qkv", "direction": "forward", "shape": "1 x 2 x 3", "count": 24,
    "median_us": 100.04, "p20_us": 99, "p80_us": 101, "tflops": 700.4, "workspace": true}]}]})");
  const std::vector<Table> tables = tables_of(gemm);
  REQUIRE(tables.size() == 1);
  REQUIRE(tables[0].rows == std::vector<std::vector<std::string>>{{"qkv", "forward", "1 x 2 x 3", "24",
                                                                   "100.0", "99.0", "101.0", "700", "yes"}});
  REQUIRE(tables[0].notes.size() == 2);
  REQUIRE(tables[0].notes[1].find("not readable") != std::string::npos);
  auto with_loss = gemm;
  with_loss["runs"][0]["loss"] = nlohmann::ordered_json::parse(
      R"({"rows": 8192, "chunk": 4096, "loss": {"median_us": 2200.04, "p20_us": 2190, "p80_us": 2210},
    "products": {"median_us": 2000, "p20_us": 1990, "p80_us": 2010}, "ratio": 1.10002, "target": "<= 1.15",
    "verdict": "met"})");
  const std::vector<Table> both = tables_of(with_loss);
  REQUIRE(both.size() == 2);
  REQUIRE(both[1].title == "Loss of 8192 tokens, 4096 at once, with its gradients");
  REQUIRE(both[1].rows ==
          std::vector<std::vector<std::string>>{
              {"its three products alone", "2000.0", "1990.0", "2010.0"},
              {"products and cross-entropy", "2200.0", "2190.0", "2210.0", "1.100", "<= 1.15", "met"}});
  REQUIRE(both[0].notes.empty());
  REQUIRE(both[1].notes.size() == 2);
  REQUIRE_THROWS_AS(tables_of(nlohmann::ordered_json{{"bench", "x"}}), std::invalid_argument);
}

}  // namespace
}  // namespace narrowgauge::bench
