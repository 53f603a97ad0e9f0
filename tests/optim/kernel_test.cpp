// The optimizer's kernels against their CPU twins, with the card's limits, an RTX 5080's and those of two
// multiprocessors.
#include <limits>

#include "cuda/error.h"
#include "lib/ops/device.h"
#include "lib/ops/gradient_norm.h"
#include "tests/optim/problem.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using namespace narrowgauge::test;

namespace {

const at::Device kCpu(at::kCPU);
const at::Device kGpu(at::kCUDA, 0);

// So few multiprocessors that a warp takes many blocks of a small buffer.
constexpr cuda::DeviceLimits kTwoProcessors = [] {
  cuda::DeviceLimits limits = cuda::kRtx5080Limits;
  limits.sm_count = 2;
  return limits;
}();

// Runs `body` with the real limits, with the 5080's and with those of two of its multiprocessors.
template <class Body>
void with_limits(const Body& body) {
  for (const cuda::DeviceLimits* limits :
       {static_cast<const cuda::DeviceLimits*>(nullptr), &cuda::kRtx5080Limits, &kTwoProcessors}) {
    ops::override_limits(limits);
    body();
  }
  ops::override_limits(nullptr);
}

// `steps` steps of random gradients (step 2 is skipped) on a device.
Snapshot run(const Sizes& sizes, const OptimConfig& config, at::ScalarType weights, at::ScalarType grad,
             at::Device device, int steps) {
  const optim::FlatBuffers buffers = make_buffers(sizes, config, weights, grad, device);
  optim::Optimizer optimizer(buffers, config);
  for (int step = 0; step < steps; ++step) {
    random_gradients(buffers, sizes, static_cast<uint64_t>(step));
    if (step == 2) buffers.grad32[0] = std::numeric_limits<float>::quiet_NaN();
    optimizer.step(step_input(1e-3, static_cast<uint64_t>(step)));
  }
  const cuda::StepState state = optimizer.read_state();
  REQUIRE(state.adam_step == steps - (steps > 2 ? 1 : 0));
  return {buffers, optimizer};
}

}  // namespace

TEST_CASE("the kernel and its CPU twin agree to the bit", "[sanitize]") {
  struct Types {
    at::ScalarType weights;
    at::ScalarType grad;
    const char* master;
  };
  for (const Types& types :
       {Types{at::kBFloat16, at::kBFloat16, "stochastic"}, Types{at::kBFloat16, at::kBFloat16, "split"},
        Types{at::kBFloat16, at::kBFloat16, "fp32"}, Types{at::kBFloat16, at::kFloat, "stochastic"},
        Types{at::kBFloat16, at::kFloat, "split"}, Types{at::kBFloat16, at::kFloat, "fp32"},
        Types{at::kFloat, at::kFloat, "stochastic"}, Types{at::kFloat, at::kBFloat16, "stochastic"}}) {
    OptimConfig config;
    config.master = types.master;
    config.min_8bit_size = 1;
    for (const int64_t n : {1, 255, 256, 257, 4095, 4096, 300000}) {
      const Sizes sizes{.matrix = n, .embedding = n / 2 + 1, .norm = 300};
      const Snapshot expected = run(sizes, config, types.weights, types.grad, kCpu, 6);
      with_limits([&] {
        INFO(types.master << " " << n);
        REQUIRE(run(sizes, config, types.weights, types.grad, kGpu, 6) == expected);
      });
    }
  }
}

TEST_CASE("an empty buffer launches nothing", "[sanitize]") {
  OptimConfig config;
  const Sizes sizes{.matrix = 0, .embedding = 0, .norm = 0};
  const optim::FlatBuffers buffers = make_buffers(sizes, config, at::kBFloat16, at::kBFloat16, kGpu);
  optim::Optimizer optimizer(buffers, config);
  optimizer.step(step_input(1e-3, 0));
  REQUIRE(optimizer.read_state().grad_norm == 0.0f);
  REQUIRE(optimizer.read_state().adam_step == 1);
}

TEST_CASE("a matrix the size of the embedding: equal to the twin, and twice the same") {
  OptimConfig config;
  const Sizes sizes{.matrix = 57344000, .embedding = 256, .norm = 256};
  const auto buffers_on = [&](at::Device device) {
    return make_buffers(sizes, config, at::kBFloat16, at::kBFloat16, device);
  };
  const optim::FlatBuffers cpu = buffers_on(kCpu);
  random_gradients(cpu, sizes, 1);
  optim::Optimizer on_cpu(cpu, config);
  on_cpu.step(step_input(1e-3, 0));
  on_cpu.step(step_input(1e-3, 1));
  const Snapshot expected(cpu, on_cpu);
  with_limits([&] {
    const optim::FlatBuffers gpu = buffers_on(kGpu);
    gpu.grad.copy_(cpu.grad);
    gpu.grad32.copy_(cpu.grad32);
    optim::Optimizer on_gpu(gpu, config);
    on_gpu.step(step_input(1e-3, 0));
    on_gpu.step(step_input(1e-3, 1));
    REQUIRE(Snapshot(gpu, on_gpu) == expected);
    REQUIRE(on_gpu.read_state().grad_norm == on_cpu.read_state().grad_norm);
  });
}

TEST_CASE("lr = 0 and huge gradients on the card") {
  for (const char* master : {"stochastic", "split", "fp32"}) {
    OptimConfig config;
    config.master = master;
    config.grad_clip = 0;
    const Sizes sizes{.matrix = 10000, .embedding = 5000, .norm = 100};
    const optim::FlatBuffers buffers = make_buffers(sizes, config, at::kBFloat16, at::kFloat, kGpu);
    optim::Optimizer optimizer(buffers, config);
    random_gradients(buffers, sizes, 1);
    optimizer.step(step_input(1e-2, 0));
    const at::Tensor before = buffers.weights.clone();
    const at::Tensor master_before = master_weights(buffers, optimizer);
    optimizer.step(step_input(0, 1));
    REQUIRE(same_bits(before, buffers.weights));
    REQUIRE(same_bits(master_before, master_weights(buffers, optimizer)));
    buffers.grad.fill_(3e38);
    optimizer.step(step_input(1e-3, 2));
    buffers.grad.fill_(0);
    optimizer.step(step_input(1e-3, 3));
    REQUIRE(optimizer.read_state().skipped_total == 0);
    REQUIRE(buffers.weights.isfinite().all().item<bool>());
  }
}

TEST_CASE("the norm kernel equals its twin and sees every non-finite element", "[sanitize]") {
  for (const int64_t n : {0, 1, 7, 8, 9, 255, 256, 257, 4095, 4096, 262144 * 8 + 5, 57344000}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor grad = Random(kCpu, type, 5)({n});
      const at::Tensor grad32 = Random(kCpu, at::kFloat, 6)({n / 3});
      const auto norm = [&](at::Device device, const at::Tensor& low) {
        const at::Tensor state = ops::make_step_state(device);
        const at::Tensor scratch =
            at::zeros({ops::kNormScratch}, at::TensorOptions(at::kDouble).device(device));
        ops::gradient_norm(state, scratch, low.to(device), grad32.to(device),
                           {.max_norm = 1, .beta1 = 0.9, .beta2 = 0.95});
        const at::Tensor bytes = state.cpu();
        return *static_cast<const cuda::StepState*>(bytes.data_ptr());
      };
      const cuda::StepState expected = norm(kCpu, grad);
      with_limits([&] {
        const cuda::StepState actual = norm(kGpu, grad);
        INFO(n);
        REQUIRE(actual.grad_norm == expected.grad_norm);
        REQUIRE(actual.clip_factor == expected.clip_factor);
        REQUIRE(actual.bias_correction1 == expected.bias_correction1);
        REQUIRE(actual.bias_correction2 == expected.bias_correction2);
        REQUIRE(actual.skip == 0);
      });
      if (n == 0) continue;
      at::Tensor poisoned = grad.to(kGpu, type, false, /*copy=*/true);
      for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
        const at::Tensor kept = poisoned[at].clone();
        poisoned[at] = 3e38;
        REQUIRE(norm(kGpu, poisoned).skip == 0);
        REQUIRE(norm(kGpu, poisoned).grad_norm == Approx(3e38).epsilon(5e-3));
        poisoned[at] = -std::numeric_limits<float>::infinity();
        REQUIRE(norm(kGpu, poisoned).skip == 1);
        poisoned[at] = kept;
      }
    }
  }
}

TEST_CASE("the late state on the card") {
  OptimConfig config;
  const Sizes sizes{.matrix = 4096, .embedding = 256, .norm = 256};
  const optim::FlatBuffers buffers = make_buffers(sizes, config, at::kBFloat16, at::kBFloat16, kGpu);
  optim::Optimizer optimizer(buffers, config);
  random_gradients(buffers, sizes, 1);
  for (int64_t step = 0; step < 20; ++step) {
    optimizer.step(step_input(1e-3, static_cast<uint64_t>(step)));
    REQUIRE(optimizer.read_state_late().adam_step == step);
  }
  cuda::StepState state = optimizer.read_state();
  state.adam_step = 1000;
  optimizer.write_state(state);
  REQUIRE(optimizer.read_state().adam_step == 1000);
  REQUIRE(optimizer.read_state_late().adam_step == 1000);
}

TEST_CASE("launchers refuse what breaks their contract") {
  const at::Tensor buffer = at::zeros({4096}, at::TensorOptions(at::kFloat).device(kGpu));
  const at::Tensor state = ops::make_step_state(kGpu);
  const cuda::DeviceLimits limits = ops::limits_of(buffer);
  float* data = buffer.data_ptr<float>();
  auto* codes = static_cast<uint8_t*>(buffer.data_ptr());
  const cuda::AdamW<float, float> good{.weights = data,
                                       .remainder = nullptr,
                                       .master = nullptr,
                                       .grad = data,
                                       .grad32 = nullptr,
                                       .m_codes = codes,
                                       .v_codes = codes,
                                       .m_scales = data,
                                       .v_scales = data,
                                       .m32 = nullptr,
                                       .v32 = nullptr,
                                       .state = static_cast<const cuda::StepState*>(state.data_ptr()),
                                       .count = 512,
                                       .grad_count = 512,
                                       .grad32_count = 0,
                                       .code_count = 512,
                                       .state32_count = 0,
                                       .rules = {0.9, 0.95, 1e-8, 0.1},
                                       .master_mode = cuda::Master::none,
                                       .ranges = {{0, 512, 0, 0, true, true, true}},
                                       .range_count = 1};
  const auto refused = [&](auto change) {
    cuda::AdamW<float, float> args = good;
    change(args);
    REQUIRE_THROWS_AS(cuda::adamw(args, limits, ops::current_stream(buffer)), cuda::LaunchError);
  };
  refused([](auto& a) { a.weights = nullptr; });
  refused([](auto& a) { a.weights += 1; });
  refused([](auto& a) { a.state = nullptr; });
  refused([](auto& a) { a.m_codes = nullptr; });
  refused([](auto& a) { a.range_count = 17; });
  refused([](auto& a) { a.ranges[0].end = 513; });
  refused([](auto& a) { a.ranges[0].end = 768; });
  refused([](auto& a) { a.ranges[0].begin = -256; });
  refused([](auto& a) { a.ranges[0].grad_begin = 256; });
  refused([](auto& a) { a.ranges[0].state_begin = 256; });
  refused([](auto& a) { a.ranges[0].eight_bit = false; });
  refused([](auto& a) { a.ranges[0].grad_is_low = false; });
  refused([](auto& a) { a.master_mode = cuda::Master::split; });
  const at::Tensor partials = at::zeros({1024}, at::TensorOptions(at::kDouble).device(kGpu));
  const auto norm_refused = [&](const cuda::GradientNorm<float>& args) {
    REQUIRE_THROWS_AS(cuda::gradient_norm(args, limits, ops::current_stream(buffer)), cuda::LaunchError);
  };
  norm_refused({.partials = nullptr, .grad = data, .count = 8});
  norm_refused({.partials = partials.data_ptr<double>(), .grad = nullptr, .count = 8});
  norm_refused({.partials = partials.data_ptr<double>(), .grad = data + 1, .count = 8});
  norm_refused({.partials = partials.data_ptr<double>(), .grad = data, .count = -1});
  REQUIRE_THROWS_AS(cuda::write_step_input(nullptr, {}, ops::current_stream(buffer)), cuda::LaunchError);
}

TEST_CASE("plans are pure functions of the limits") {
  const cuda::DeviceLimits& card = cuda::kRtx5080Limits;
  REQUIRE(cuda::plan_adamw(0, card).blocks == 0);
  REQUIRE(cuda::plan_adamw(256, card).blocks == 1);
  REQUIRE(cuda::plan_adamw(int64_t{1} << 30, card).blocks == 84);
  REQUIRE(cuda::plan_gradient_norm(card).blocks == 84 * 6);
}
