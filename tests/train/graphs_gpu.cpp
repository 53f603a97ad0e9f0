// CUDA graphs give the bits of steps without them, and a steady step neither allocates nor waits.
#include <ATen/ops/full.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lib/ops/cross_entropy.h"
#include "lib/optim/schedule.h"
#include "lib/train/device.h"
#include "lib/train/graph.h"
#include "lib/train/setup.h"
#include "lib/train/step.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/train/bad_gradient.h"
#include "tests/train/gradients.h"
#include "tests/train/runs.h"

namespace narrowgauge::test {
namespace {

const at::Device kGpu(at::kCUDA, 0);
constexpr int64_t kSequences = 7;  // with a micro-batch of 3 the last piece is shorter
constexpr int64_t kContext = 64;

// A host batch and what it points to. Sequences have from one to many documents, other ones in other steps.
struct HostBatch {
  explicit HostBatch(int64_t step) {
    auto state = static_cast<uint32_t>(step) * 7919U + 1;
    for (int64_t i = 0; i < kSequences * kContext; ++i) {
      state = state * 1664525U + 1013904223U;
      tokens.push_back(static_cast<int32_t>((state >> 8) % 211U));
      targets.push_back(i % 13 == 0 ? ops::kIgnoreIndex : (tokens.back() + 1) % 211);
    }
    batch.document_starts.resize(kSequences);
    for (int64_t s = 0; s < kSequences; ++s) {
      const int64_t length = step % 3 == 0 ? kContext : 3 + (step + s) % 11;
      for (int64_t i = 0; i < kContext; ++i) {
        if (i % length == 0) batch.document_starts[static_cast<size_t>(s)].push_back(static_cast<int32_t>(i));
        positions.push_back(static_cast<int32_t>(i % length));
      }
    }
    batch.sequences = kSequences;
    batch.context = kContext;
    batch.tokens = tokens.data();
    batch.targets = targets.data();
    batch.positions = positions.data();
  }
  HostBatch(const HostBatch&) = delete;
  HostBatch& operator=(const HostBatch&) = delete;

  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<int32_t> positions;
  data::GlobalBatch batch;
};

// A model with its optimizer and step, on the GPU.
struct Bench {
  Bench(const Config& config, bool graphs) : config_(config) {
    train::set_numerics(true);
    train::open_device("cuda");
    model = train::make_model(config, kGpu);
    train::set_initial_weights(*model, config);
    optimizer = train::make_optimizer(config, *model);
    optimizer->reset_master();
    step = std::make_unique<train::Step>(*model, *optimizer, kSequences, 3, graphs);
  }

  void run(int64_t number, int64_t total) {
    const HostBatch host(number);  // gone as soon as the step is queued
    const double rate = optim::learning_rate(config_.optim, total, number);
    REQUIRE(step->run(host.batch, {.learning_rate = static_cast<float>(rate),
                                   .inverse_tokens = 1.0F / (kSequences * kContext),
                                   .seed = 5,
                                   .step = static_cast<uint64_t>(number)}));
  }

  Config config_;
  std::unique_ptr<model::Transformer> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<train::Step> step;
};

struct Trace {
  std::vector<train::StepResult> results;
  at::Tensor weights;
  std::vector<std::pair<std::string, at::Tensor>> states;
};

// `count` steps of warmup and decay; the gradient of number 20 is not finite.
Trace trace(const Config& config, bool graphs, int64_t count) {
  Bench bench(config, graphs);
  Trace trace;
  const at::Tensor poisoned =
      bench.model->arena().weight(bench.model->arena().slot("norm.weight")).select(0, 3);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor healthy = poisoned.clone();
    if (i == 20) poisoned.fill_(std::numeric_limits<double>::infinity());
    bench.run(i, count);
    if (i == 20) poisoned.copy_(healthy);
    if (i > 0) trace.results.push_back(bench.step->previous());
  }
  trace.results.push_back(bench.step->latest());
  trace.weights = bench.model->arena().weights().clone();
  for (const auto& [name, tensor] : bench.optimizer->state_tensors())
    trace.states.emplace_back(name, tensor.clone());
  return trace;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void require_same(const Trace& a, const Trace& b) {
  REQUIRE(a.results.size() == b.results.size());
  for (size_t i = 0; i < a.results.size(); ++i) {
    INFO("step " << i << ": loss " << a.results[i].loss_sum << " and " << b.results[i].loss_sum << ", norm "
                 << a.results[i].state.grad_norm << " and " << b.results[i].state.grad_norm);
    REQUIRE(same(a.results[i].loss_sum, b.results[i].loss_sum));
    REQUIRE(same(a.results[i].lse_sum, b.results[i].lse_sum));
    REQUIRE(same(a.results[i].state.grad_norm, b.results[i].state.grad_norm));
    REQUIRE(a.results[i].state.adam_step == b.results[i].state.adam_step);
    REQUIRE(a.results[i].state.skipped_total == b.results[i].state.skipped_total);
    REQUIRE(a.results[i].state.input.step == i);
    REQUIRE(b.results[i].state.input.step == i);
  }
  REQUIRE(a.results.back().state.skipped_total == 1);
  REQUIRE(a.results.back().loss_sum < a.results.front().loss_sum);
  REQUIRE(a.weights.equal(b.weights));
  REQUIRE(a.states.size() == b.states.size());
  for (size_t i = 0; i < a.states.size(); ++i) {
    INFO(a.states[i].first);
    REQUIRE(a.states[i].second.equal(b.states[i].second));
  }
}

Config step_config(const std::string& dtype, bool document_mask) {
  Config config = small_config(dtype, kContext);
  config.data.document_mask = document_mask;
  config.optim.lr = 3e-3;
  config.optim.schedule = "wsd";
  config.optim.warmup_steps = 10;
  config.optim.decay_fraction = 0.4;
  config.memory.loss_chunk = 100;
  return config;
}

TEST_CASE("50 steps with and without graphs give the same bits") {
  for (const char* dtype : {"bf16", "fp32"}) {
    for (const bool document_mask : {false, true}) {
      INFO(dtype << (document_mask ? ", document masks" : ""));
      Config config = step_config(dtype, document_mask);
      require_same(trace(config, true, 50), trace(config, false, 50));
      config.memory.recompute = {RecomputeLevel::block};
      require_same(trace(config, true, 50), trace(config, false, 50));
    }
  }
}

TEST_CASE("50 steps with graphs and every kind of master weights") {
  for (const char* master : {"split", "fp32"}) {
    Config config = step_config("bf16", false);
    config.optim.master = master;
    require_same(trace(config, true, 50), trace(config, false, 50));
  }
}

// Numbers of calls since the process began.
struct Calls {
  int64_t device_allocations;  // cudaMalloc
  int64_t allocations;         // of the caching allocator
};
Calls calls() {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  return {.device_allocations = stats.num_device_alloc, .allocations = stats.allocation[0].allocated};
}

// An error in its scope when LibTorch makes the host wait for the device.
struct NoWaiting {
  NoWaiting() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR); }
  ~NoWaiting() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED); }
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;
};

TEST_CASE("a steady step allocates nothing and does not wait") {
  for (const bool graphs : {false, true}) {
    for (const bool document_mask : {false, true}) {
      INFO((graphs ? "graphs" : "no graphs") << (document_mask ? ", document masks" : ""));
      Bench bench(step_config("bf16", document_mask), graphs);
      for (int64_t i = 0; i < 6; ++i) bench.run(i, 50);  // every shape of a piece, twice
      const Calls before = calls();
      {
        const NoWaiting guard;
        for (int64_t i = 6; i < 12; ++i) bench.run(i, 50);
      }
      const Calls after = calls();
      REQUIRE(after.device_allocations == before.device_allocations);
      if (graphs) REQUIRE(after.allocations == before.allocations);
      REQUIRE(bench.step->latest().state.adam_step == 12);
    }
  }
}

TEST_CASE("a step that is given up leaves no trace with graphs") {
  Bench bench(step_config("bf16", false), true);
  for (int64_t i = 0; i < 3; ++i) bench.run(i, 50);
  const at::Tensor weights = bench.model->arena().weights().clone();
  const HostBatch host(3);
  REQUIRE_FALSE(bench.step->run(host.batch, {.learning_rate = 1e-3F, .inverse_tokens = 1e-3F},
                                [](double fraction) { return fraction < 0.5; }));
  REQUIRE(bench.model->arena().weights().equal(weights));
  bench.run(3, 50);
  const at::Tensor after = bench.model->arena().weights().clone();

  Bench other(step_config("bf16", false), true);
  for (int64_t i = 0; i < 4; ++i) other.run(i, 50);
  REQUIRE(other.model->arena().weights().equal(after));
}

TEST_CASE("a body that fails while it is captured leaves stream and allocator as they were") {
  train::open_device("cuda");
  train::Graphs graphs(kGpu, true);
  at::Tensor x;
  const auto run = [&](bool fail) {
    graphs.on_stream([&] {
      graphs.run({1, 1}, [&] {
        const at::Tensor temporary = x.clone();
        x.add_(temporary);
        if (fail) throw std::runtime_error("on purpose");
      });
    });
  };
  x = at::full({4}, 2.0, at::TensorOptions(kGpu));
  run(false);
  REQUIRE_THROWS_AS(run(true), std::runtime_error);
  run(false);
  run(false);
  REQUIRE(x.eq(16).all().item<bool>());
  graphs.forget();
  for (int i = 0; i < 3; ++i) run(false);
  REQUIRE(x.eq(128).all().item<bool>());
}

TEST_CASE("a skipped step with graphs") { check_bad_gradient(kGpu, "bf16", /*cuda_graphs=*/true); }

TEST_CASE("runs with and without graphs, whole and resumed, give the same bits") {
  const TemporaryFolder folder;
  for (const bool document_mask : {false, true}) {
    Config config = byte_config(write_corpus(folder.path()), "cuda", "bf16", 2, 128, 128);
    config.data.document_mask = document_mask;
    config.data.end_of_document = '\n';
    config.optim.schedule_steps = 20;
    config.train.micro_batch = 4;
    config.train.steps = 20;
    const std::string name = document_mask ? "masked" : "whole";
    const auto run = [&](const std::string& run_name, const char* graphs, int64_t steps,
                         const char* resume = "") {
      config.train.cuda_graphs = graphs;
      config.train.steps = steps;
      train_run(config, folder / (name + run_name), resume);
    };
    run("-off", "off", 20);
    run("-on", "on", 20);
    run("-parts", "on", 9);
    run("-parts", "on", 20, "auto");
    require_same_losses(folder / (name + "-off"), folder / (name + "-on"));
    require_same_losses(folder / (name + "-on"), folder / (name + "-parts"));
    for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
      INFO(file);
      const auto saved = [&](const char* run_name) {
        return read_text(folder / (name + run_name) / "checkpoints/step-00000020" / file);
      };
      REQUIRE_FALSE(saved("-on").empty());
      REQUIRE(saved("-on") == saved("-off"));
      REQUIRE(saved("-on") == saved("-parts"));
    }
  }
}

}  // namespace
}  // namespace narrowgauge::test
