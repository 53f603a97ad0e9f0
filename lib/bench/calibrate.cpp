#include "lib/bench/calibrate.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <functional>
#include <stdexcept>

#include "cuda/scale.h"
#include "lib/bench/attention_pass.h"
#include "lib/bench/kernel_cases.h"
#include "lib/bench/kernels.h"
#include "lib/bench/products.h"
#include "lib/ops/attention_choice.h"
#include "lib/ops/choices.h"
#include "lib/ops/device.h"
#include "lib/ops/gemm.h"
#include "lib/plan/choice.h"
#include "lib/train/graph.h"
#include "lib/train/kernel_choices.h"

namespace narrowgauge::bench {
namespace {

using plan::Probe;
using plan::Work;

constexpr double kWarmUpSeconds = 1;    // clocks and power are then those of a card at work
constexpr double kBurstSeconds = 0.03;  // of the same operation before it is measured
constexpr int64_t kWarmUpSize = 4096;

// Of a pass over memory in parts: many kernels, each with enough to do to fill a card.
constexpr int64_t kParts = 64;
constexpr int64_t kPartElements = int64_t{1} << 20;  // fp32

// Keeps the device busy with the operation for at least so long.
void repeat(const Gpu& gpu, const std::vector<Prepared>& sets, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr int kQueued = 8;  // the device does not wait for the host
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  size_t next = 0;
  do {
    for (int i = 0; i < kQueued; ++i) sets[next++ % sets.size()].launch();
    synchronise(gpu.device);
  } while (Clock::now() < end);
}

double median_seconds(const Gpu& gpu, const std::function<Prepared()>& prepare) {
  const std::vector<Prepared> sets = rotating_sets(gpu, prepare);
  repeat(gpu, sets, kBurstSeconds);
  return 1e-6 * time_sets(gpu, sets).median;
}

// False: the device's memory is not enough, or no kernel takes the shape.
bool works(const std::function<void()>& body) {
  try {
    body();
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

bool is_attention(Work work) {
  return work == Work::attention || work == Work::attention_backward ||
         work == Work::attention_backward_deterministic;
}

// Goes over x in place in `parts` kernels.
void pass_over(const at::Tensor& x, int64_t parts) {
  const int64_t count = x.numel() / parts;
  auto* const data = static_cast<float*>(x.mutable_data_ptr());
  for (int64_t i = 0; i < parts; ++i) {
    cuda::scale<float>({.y = data + i * count, .x = data + i * count, .count = count, .factor = 1.0F},
                       ops::limits_of(x), ops::current_stream(x));
  }
}

class Calibration {
 public:
  Calibration(at::Device device, const Config& config, int64_t byte_limit)
      : gpu_(device),
        config_(config),
        byte_limit_(byte_limit),
        dtype_(config.train.dtype == "fp32" ? at::kFloat : at::kBFloat16) {}

  // Chooses the probe's kernel.
  void choose(const Probe& probe) const {
    if (probe.work <= Work::product_weight_grad) {
      if (dtype_ != at::kBFloat16 || !config_.train.tune_kernels) return;
      const auto which = static_cast<size_t>(direction(probe));
      (void)ops::time_gemm(ops::linear_products(linear(probe)).at(which), gpu_.device, byte_limit_);
    } else if (is_attention(probe.work)) {
      (void)attention(probe);
    }
  }

  void warm_up() const {
    const ops::LinearShape square{.rows = kWarmUpSize,
                                  .in = kWarmUpSize,
                                  .out = kWarmUpSize,
                                  .y_stride = kWarmUpSize,
                                  .dtype = dtype_,
                                  .grad_dtype = dtype_};
    repeat(gpu_, {prepare_product(gpu_.device, square, Direction::forward)}, kWarmUpSeconds);
  }

  [[nodiscard]] double seconds(const Probe& probe) const {
    switch (probe.work) {
      case Work::product:
      case Work::product_input_grad:
      case Work::product_weight_grad:
        return median_seconds(gpu_,
                              [&] { return prepare_product(gpu_.device, linear(probe), direction(probe)); });
      case Work::attention:
      case Work::attention_backward:
      case Work::attention_backward_deterministic: {
        const ops::Attention chosen = attention(probe);
        return median_seconds(gpu_, [&] {
          return prepare_attention(gpu_.device, chosen, dtype_, probe.work == Work::attention);
        });
      }
      case Work::traffic:
        return median_seconds(gpu_, [&] { return prepare_copy(gpu_.device, probe.rows); });
      case Work::launch:
        return gap() * static_cast<double>(probe.rows);
    }
    throw std::logic_error("unknown work");
  }

 private:
  static Direction direction(const Probe& probe) { return static_cast<Direction>(probe.work); }

  [[nodiscard]] ops::LinearShape linear(const Probe& probe) const {
    const auto [in, out, gradient, unused] = probe.shape;
    return {.rows = probe.rows,
            .in = in,
            .out = out,
            .y_stride = ops::padded_row(out, static_cast<int64_t>(c10::elementSize(dtype_))),
            .dtype = dtype_,
            .grad_dtype = gradient == 4 ? at::kFloat : dtype_};
  }

  // Chooses the kernel unless ops::choices() knows, and makes the numerics the probe's.
  [[nodiscard]] ops::Attention attention(const Probe& probe) const {
    const auto [context, heads, kv_heads, head_size] = probe.shape;
    const bool deterministic = probe.work == Work::attention
                                   ? plan::assumes_determinism(config_)
                                   : probe.work == Work::attention_backward_deterministic;
    train::set_numerics(deterministic);
    const ops::AttentionJob job{.device = gpu_.device,
                                .dtype = dtype_,
                                .shape = {.batch = probe.rows,
                                          .context = context,
                                          .heads = heads,
                                          .kv_heads = kv_heads,
                                          .head_dim = head_size},
                                .deterministic = deterministic,
                                .document_mask = config_.data.document_mask,
                                .workspace_limit = config_.memory.attention_workspace};
    return {.shape = job.shape,
            .kernel = ops::choose_attention(config_.train.attention, job).kernel,
            .deterministic = deterministic,
            .documents = {},
            .workspace_limit = job.workspace_limit};
  }

  // Seconds from the end of a kernel to the beginning of the next.
  [[nodiscard]] double gap() const {
    const at::Tensor x = random_normal(gpu_.device, {kParts * kPartElements}, at::kFloat);
    train::Graphs graphs(gpu_.device, true);
    const auto time = [&](int64_t parts) {
      double microseconds = 0;
      graphs.on_stream([&] {
        const auto pass = [&] { graphs.run({parts, 0}, [&] { pass_over(x, parts); }); };
        microseconds = time_launches(gpu_, {pass}).median;
      });
      return microseconds;
    };
    const double whole = time(1);
    return 1e-6 * (time(kParts) - whole) / static_cast<double>(kParts - 1);
  }

  Gpu gpu_;
  const Config& config_;
  int64_t byte_limit_;
  at::ScalarType dtype_;
};

}  // namespace

std::vector<plan::Measurement> calibrate(const train::ComputeDevice& device, const Config& config,
                                         const std::vector<Probe>& probes, int64_t byte_limit) {
  static_assert(static_cast<int>(Work::product_weight_grad) == static_cast<int>(Direction::weight_grad));
  if (probes.empty()) return {};
  const bool deterministic = plan::assumes_determinism(config);
  train::set_numerics(deterministic);
  train::recall_choices(device, "", {});
  const Calibration calibration(device.device, config, byte_limit);
  // All choices first: planning and timing them leaves the device idle at times.
  std::vector<Probe> able;
  for (const Probe& probe : probes) {
    if (works([&] { calibration.choose(probe); })) able.push_back(probe);
    release_cached_memory();
  }
  if (config.train.tune_kernels && config.train.dtype == "bf16") {
    train::remember_choices({.place = ops::choice_place(device.device),
                             .gemm = {},
                             .products_ms = 0,
                             .cache = ops::choice_cache_path()});
  }
  (void)works([&] { calibration.warm_up(); });
  std::vector<plan::Measurement> measured;
  for (const Probe& probe : able) {
    double seconds = 0;
    if (works([&] { seconds = calibration.seconds(probe); }) && seconds > 0) {
      measured.push_back({.probe = probe, .seconds = seconds});
    }
    release_cached_memory();
  }
  ops::choices().clear();
  train::set_numerics(deterministic);
  return measured;
}

}  // namespace narrowgauge::bench
