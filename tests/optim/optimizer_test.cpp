// The optimizer on the CPU against an independent fp64 AdamW, and its guarantees.
#include "lib/optim/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>

#include <cmath>
#include <limits>

#include "lib/ops/gradient_norm.h"
#include "tests/optim/problem.h"
#include "tests/optim/reference.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using namespace narrowgauge::test;

namespace {

constexpr Sizes kSizes{.matrix = 4352, .embedding = 5000, .norm = 300};
const at::Device kCpu(at::kCPU);

std::vector<double> doubles(const at::Tensor& t) {
  const at::Tensor wide = t.to(at::kDouble).contiguous();
  return {wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel()};
}

// Largest |a - b| / (1e-3 + |b|), and the mean.
std::pair<double, double> error(const at::Tensor& a, const std::vector<double>& b) {
  const std::vector<double> x = doubles(a);
  double largest = 0;
  double sum = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double e = std::fabs(x[i] - b[i]) / (1e-3 + std::fabs(b[i]));
    largest = std::max(largest, e);
    sum += e;
  }
  return {largest, sum / static_cast<double>(b.size())};
}

}  // namespace

TEST_CASE("50 steps agree with fp64 AdamW, with and without 8-bit states") {
  for (const bool eight_bit : {false, true}) {
    OptimConfig config;
    config.state = eight_bit ? "8bit" : "fp32";
    config.embedding_state = "8bit";
    config.grad_clip = 1.0;  // bites: the gradients are large
    const optim::FlatBuffers buffers = make_buffers(kSizes, config, at::kFloat, at::kFloat, kCpu);
    optim::Optimizer optimizer(buffers, config);
    REQUIRE(buffers.ranges[0].eight_bit == eight_bit);
    ReferenceAdamW matrix{1e-3, 0.9, 0.95, 1e-8, 0.1, eight_bit, doubles(buffers.weights.narrow(0, 0, 4352)),
                          {},   {}};
    ReferenceAdamW norm{
        1e-3, 0.9, 0.95, 1e-8, 0.0, false, doubles(buffers.weights.narrow(0, 4352 + 5120, 300)), {}, {}};
    for (uint64_t step = 0; step < 50; ++step) {
      random_gradients(buffers, kSizes, 100 + step);
      const double total = std::sqrt(buffers.grad.to(at::kDouble).square().sum().item<double>() +
                                     buffers.grad32.to(at::kDouble).square().sum().item<double>());
      optimizer.step(step_input(1e-3, step));
      REQUIRE(optimizer.read_state().grad_norm == Approx(total).epsilon(1e-6));
      const double clip = std::min(1.0, 1.0 / (total + 1e-6));
      matrix.update(doubles(buffers.grad.to(at::kDouble).mul(clip)));
      norm.update(doubles(buffers.grad32.narrow(0, 5120, 300).to(at::kDouble).mul(clip)));
    }
    const auto [largest, mean] = error(buffers.weights.narrow(0, 0, 4352), matrix.p);
    INFO("8-bit " << eight_bit << " largest " << largest << " mean " << mean);
    REQUIRE(largest < (eight_bit ? 2e-2 : 2e-5));
    REQUIRE(mean < (eight_bit ? 6e-5 : 1e-6));
    REQUIRE(error(buffers.weights.narrow(0, 4352 + 5120, 300), norm.p).first < 2e-5);
    // Padding between the tensors is still zero.
    REQUIRE(buffers.weights.narrow(0, 4352 + 5000, 120).abs().sum().item<float>() == 0.0f);
    REQUIRE(buffers.weights.narrow(0, 4352 + 5120 + 300, 212).abs().sum().item<float>() == 0.0f);
  }
}

TEST_CASE("split and fp32 masters walk the path of fp32 weights, to the bit") {
  OptimConfig config;
  const optim::FlatBuffers plain = make_buffers(kSizes, config, at::kFloat, at::kBFloat16, kCpu);
  for (const char* master : {"split", "fp32"}) {
    config.master = master;
    const optim::FlatBuffers buffers = make_buffers(kSizes, config, at::kBFloat16, at::kBFloat16, kCpu);
    optim::Optimizer optimizer(buffers, config);
    plain.weights.copy_(buffers.weights);
    optim::Optimizer fresh(plain, config);
    for (uint64_t step = 0; step < 20; ++step) {
      random_gradients(buffers, kSizes, step);
      plain.grad.copy_(buffers.grad);
      plain.grad32.copy_(buffers.grad32);
      optimizer.step(step_input(1e-3, step));
      fresh.step(step_input(1e-3, step));
    }
    REQUIRE(same_bits(master_weights(buffers, optimizer), plain.weights));
    REQUIRE(same_bits(master_weights(plain, fresh), plain.weights));
    const at::Tensor rounding = (buffers.weights.to(at::kFloat) - plain.weights).abs();
    REQUIRE((rounding <= plain.weights.abs() * 0x1p-8).all().item<bool>());
    optimizer.reset_master();
    REQUIRE(same_bits(master_weights(buffers, optimizer), buffers.weights.to(at::kFloat)));
  }
}

TEST_CASE("stochastic rounding follows the fp32 path without bias") {
  // 65536 weights with one value and one gradient: their mean is the fp32 weight.
  const Sizes sizes{.matrix = 65536, .embedding = 0, .norm = 0};
  OptimConfig config;
  config.weight_decay = 0;
  const optim::FlatBuffers buffers = make_buffers(sizes, config, at::kBFloat16, at::kBFloat16, kCpu);
  buffers.weights.fill_(1.0);
  optim::Optimizer optimizer(buffers, config);
  for (uint64_t step = 0; step < 20; ++step) {
    buffers.grad.fill_(1.0);
    optimizer.step(step_input(1e-4, step));  // a twentieth to a fortieth of one unit in the last place
  }
  const double mean = buffers.weights.to(at::kDouble).mean().item<double>();
  REQUIRE(mean == Approx(1 - 20 * 1e-4).margin(3e-5));
  REQUIRE(buffers.weights.to(at::kFloat).std().item<float>() > 1e-3);
}

TEST_CASE("lr = 0 changes no weight, decay alone shrinks, gradients are only read") {
  for (const char* master : {"stochastic", "split", "fp32"}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      OptimConfig config;
      config.master = master;
      const optim::FlatBuffers buffers = make_buffers(kSizes, config, type, at::kFloat, kCpu);
      optim::Optimizer optimizer(buffers, config);
      random_gradients(buffers, kSizes, 1);
      optimizer.step(step_input(1e-2, 0));
      const at::Tensor before = buffers.weights.clone();
      const at::Tensor master_before = master_weights(buffers, optimizer);
      const at::Tensor grad = buffers.grad.clone();
      optimizer.step(step_input(0, 1));
      REQUIRE(same_bits(before, buffers.weights));
      REQUIRE(same_bits(master_before, master_weights(buffers, optimizer)));
      REQUIRE(same_bits(grad, buffers.grad));
    }
  }
  OptimConfig config;
  const optim::FlatBuffers buffers = make_buffers(kSizes, config, at::kFloat, at::kFloat, kCpu);
  optim::Optimizer optimizer(buffers, config);
  const at::Tensor before = buffers.weights.clone();
  for (uint64_t step = 0; step < 3; ++step) optimizer.step(step_input(0.1, step));  // zero gradients
  const double factor = std::pow(1 - 0.1 * 0.1, 3);
  const at::Tensor decayed = before.narrow(0, 0, 9472) * factor;
  REQUIRE((buffers.weights.narrow(0, 0, 9472) - decayed).abs().max().item<float>() < 1e-6f);
  REQUIRE(same_bits(buffers.weights.narrow(0, 9472, 512), before.narrow(0, 9472, 512)));  // norms
}

TEST_CASE("a non-finite gradient skips the whole step") {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  OptimConfig config;
  config.master = "split";
  const optim::FlatBuffers buffers = make_buffers(kSizes, config, at::kBFloat16, at::kBFloat16, kCpu);
  optim::Optimizer optimizer(buffers, config);
  random_gradients(buffers, kSizes, 1);
  optimizer.step(step_input(1e-3, 0));
  const Snapshot before(buffers, optimizer);
  uint64_t step = 1;
  for (const float value : bad) {
    for (const at::Tensor& grad : {buffers.grad, buffers.grad32}) {
      random_gradients(buffers, kSizes, 2);
      grad[grad.numel() - 1] = value;
      optimizer.step(step_input(1e-3, step++));
      REQUIRE(optimizer.read_state().skip == 1);
      REQUIRE(Snapshot(buffers, optimizer) == before);
      grad.zero_();
    }
  }
  cuda::StepState state = optimizer.read_state();
  REQUIRE(state.skipped_in_row == 6);
  REQUIRE(state.adam_step == 1);
  // Huge but finite gradients are no reason to skip, nor do they break the states.
  buffers.grad.fill_(1e19);
  optimizer.step(step_input(1e-3, step));
  state = optimizer.read_state();
  REQUIRE(state.skip == 0);
  REQUIRE(state.skipped_in_row == 0);
  REQUIRE(state.skipped_total == 6);
  REQUIRE(state.grad_norm == Approx(1e19 * std::sqrt(4352.0)).epsilon(5e-3));
  REQUIRE(master_weights(buffers, optimizer).isfinite().all().item<bool>());
}

TEST_CASE("huge gradients without clipping keep everything finite") {
  OptimConfig config;
  config.grad_clip = 0;
  const optim::FlatBuffers buffers = make_buffers(kSizes, config, at::kFloat, at::kFloat, kCpu);
  optim::Optimizer optimizer(buffers, config);
  for (uint64_t step = 0; step < 5; ++step) {
    random_gradients(buffers, kSizes, step);
    if (step == 1) buffers.grad.fill_(3e38);
    if (step == 2) buffers.grad.fill_(1e-38);
    optimizer.step(step_input(1e-3, step));
    REQUIRE(optimizer.read_state().skip == 0);
    REQUIRE(optimizer.read_state().clip_factor == 1.0f);
  }
  REQUIRE(buffers.weights.isfinite().all().item<bool>());
  for (const auto& [name, tensor] : optimizer.state_tensors()) {
    if (tensor.is_floating_point()) REQUIRE(tensor.isfinite().all().item<bool>());
  }
}

TEST_CASE("saved and restored in the middle, a run continues with the same bits") {
  for (const char* master : {"stochastic", "split", "fp32"}) {
    OptimConfig config;
    config.master = master;
    const optim::FlatBuffers buffers = make_buffers(kSizes, config, at::kBFloat16, at::kBFloat16, kCpu);
    optim::Optimizer optimizer(buffers, config);
    const optim::FlatBuffers other = make_buffers(kSizes, config, at::kBFloat16, at::kBFloat16, kCpu);
    optim::Optimizer resumed(other, config);
    for (uint64_t step = 0; step < 12; ++step) {
      if (step == 6) {
        other.weights.copy_(buffers.weights);
        const auto from = optimizer.state_tensors();
        const auto to = resumed.state_tensors();
        REQUIRE(from.size() == to.size());
        for (size_t i = 0; i < from.size(); ++i) to[i].second.copy_(from[i].second);
        resumed.write_state(optimizer.read_state());
      }
      random_gradients(buffers, kSizes, step);
      other.grad.copy_(buffers.grad);
      other.grad32.copy_(buffers.grad32);
      optimizer.step(step_input(1e-3, step));
      if (step >= 6) resumed.step(step_input(1e-3, step));
    }
    REQUIRE(Snapshot(buffers, optimizer) == Snapshot(other, resumed));
    REQUIRE(resumed.read_state().adam_step == 12);
  }
}

TEST_CASE("names, order and bytes of the states; the late state") {
  OptimConfig config;
  config.master = "split";
  const optim::FlatBuffers buffers = make_buffers(kSizes, config, at::kBFloat16, at::kBFloat16, kCpu);
  optim::Optimizer optimizer(buffers, config);
  std::string names;
  size_t bytes = 0;
  for (const auto& [name, tensor] : optimizer.state_tensors()) {
    names += name + " ";
    bytes += tensor.nbytes();
  }
  REQUIRE(names == "m.codes m.scales v.codes v.scales m.fp32 v.fp32 remainder ");
  REQUIRE(bytes == 2 * (4352 + 17 * 4) + 8 * (5120 + 512) + 2 * (4352 + 5120 + 512));
  for (int64_t step = 0; step < 4; ++step) {
    random_gradients(buffers, kSizes, 1);
    optimizer.step(step_input(1e-3, static_cast<uint64_t>(step)));
    REQUIRE(optimizer.read_state().adam_step == step + 1);
    REQUIRE(optimizer.read_state_late().adam_step == step);  // that of the call before
  }
}

TEST_CASE("more ranges than one launch takes") {
  OptimConfig config;
  std::vector<layout::TensorSlot> slots;
  for (int64_t i = 0; i < 40; ++i) slots.push_back({i * 4096, i * 4096, i % 2 ? 4096 : 4000, false, false});
  optim::FlatBuffers buffers;
  buffers.weights = at::zeros({40 * 4096}, at::kFloat);
  buffers.grad = at::zeros({40 * 4096}, at::kFloat).fill_(1.0);
  buffers.ranges = layout::make_update_ranges(slots, config);
  REQUIRE(buffers.ranges.size() == 40);
  optim::Optimizer optimizer(buffers, config);
  optimizer.step(step_input(1e-3, 0));
  REQUIRE((buffers.weights + 1e-3).abs().max().item<float>() < 1e-7f);
}

TEST_CASE("the norm of every size, exact about what is finite") {
  for (const int64_t n :
       {0, 1, 3, 7, 8, 9, 255, 256, 257, 4095, 4096, 262144 * 8 + 5, 1024 * 256 * 8 * 5 + 12345}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor state = ops::make_step_state(kCpu);
      const at::Tensor scratch = at::empty({ops::kNormScratch}, at::TensorOptions(at::kDouble));
      const at::Tensor grad = Random(kCpu, type, 5)({n});
      const at::Tensor grad32 = Random(kCpu, at::kFloat, 6)({n / 2});
      const auto run = [&] {
        ops::gradient_norm(state, scratch, grad, grad32, {.max_norm = 1, .beta1 = 0.9, .beta2 = 0.95});
        return *static_cast<const cuda::StepState*>(state.data_ptr());
      };
      const double expected = std::sqrt(grad.to(at::kDouble).square().sum().item<double>() +
                                        grad32.to(at::kDouble).square().sum().item<double>());
      REQUIRE(run().grad_norm == Approx(expected).epsilon(1e-6));
      if (n == 0) continue;
      for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
        const at::Tensor kept = grad[at].clone();
        grad[at] = 3e38;
        REQUIRE(run().skip == 0);
        REQUIRE(run().grad_norm == Approx(3e38).epsilon(5e-3));
        grad[at] = std::numeric_limits<float>::quiet_NaN();
        REQUIRE(run().skip == 1);
        grad[at] = kept;
      }
      REQUIRE(run().skip == 0);
    }
  }
}

TEST_CASE("8-bit states track fp32 states on a logistic problem") {
  // Features of very different sizes, so that gradients of one block span four decades.
  constexpr int64_t kFeatures = 4096;
  constexpr int64_t kSamples = 512;
  Random random(kCpu, at::kFloat, 9);
  const at::Tensor scale = (random({kFeatures}) * 2.3).exp();
  const at::Tensor x = random({kSamples, kFeatures}) * scale / scale.norm();
  const at::Tensor y = (at::matmul(x, random({kFeatures})) > 0).to(at::kFloat);
  double last[2] = {};
  for (const bool eight_bit : {false, true}) {
    OptimConfig config;
    config.state = eight_bit ? "8bit" : "fp32";
    const Sizes sizes{.matrix = kFeatures, .embedding = 0, .norm = 0};
    const optim::FlatBuffers buffers = make_buffers(sizes, config, at::kFloat, at::kFloat, kCpu);
    buffers.weights.zero_();
    optim::Optimizer optimizer(buffers, config);
    for (uint64_t step = 0; step < 300; ++step) {
      const int64_t first = static_cast<int64_t>(step) % 8 * 64;
      const at::Tensor rows = x.narrow(0, first, 64);
      const at::Tensor wanted = y.narrow(0, first, 64);
      const at::Tensor logits = at::matmul(rows, buffers.weights);
      const at::Tensor p = logits.sigmoid();
      buffers.grad.copy_(at::matmul((p - wanted) / 64, rows));
      optimizer.step(step_input(2e-3, step));
      if (step >= 200) {
        const at::Tensor loss =
            (logits.abs().neg().exp().log1p() + logits.clamp_min(0) - logits * wanted).mean();
        last[eight_bit ? 1 : 0] += loss.item<double>() / 100;
      }
    }
  }
  INFO("fp32 " << last[0] << " 8-bit " << last[1]);
  REQUIRE(last[0] < 0.6);
  REQUIRE(last[1] == Approx(last[0]).epsilon(0.02));
}

TEST_CASE("a small gradient seen once beside large ones does not throw its weight") {
  // In 8 bits its v is below the smallest entry of the map; as 0 it would leave m / eps as the next update.
  OptimConfig config;
  config.grad_clip = 0;
  config.weight_decay = 0;
  const Sizes sizes{.matrix = 4096, .embedding = 0, .norm = 0};
  const optim::FlatBuffers buffers = make_buffers(sizes, config, at::kFloat, at::kFloat, kCpu);
  buffers.weights.zero_();
  optim::Optimizer optimizer(buffers, config);
  for (uint64_t step = 0; step < 20; ++step) {
    buffers.grad.fill_(step % 2 == 0 ? 1.0 : -1.0);
    buffers.grad[7] = step == 0 ? 1e-4f : 0.0f;
    optimizer.step(step_input(1e-3, step));
    REQUIRE(std::fabs(buffers.weights[7].item<float>()) < 5e-3f);
  }
}
