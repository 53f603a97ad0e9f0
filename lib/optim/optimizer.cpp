#include "lib/optim/optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "lib/ops/gradient_norm.h"
#include "lib/optim/master.h"

namespace narrowgauge::optim {
namespace {

cuda::Master master_mode(const OptimConfig& config, at::ScalarType weights) {
  if (weights == at::kFloat) return cuda::Master::none;
  if (config.master == "stochastic") return cuda::Master::stochastic;
  if (config.master == "split") return cuda::Master::split;
  if (config.master == "fp32") return cuda::Master::fp32;
  throw std::invalid_argument("unknown optim.master: " + config.master);
}

cuda::StepState as_state(const at::Tensor& bytes) {
  cuda::StepState state;
  std::memcpy(&state, bytes.const_data_ptr(), sizeof state);
  return state;
}

}  // namespace

Optimizer::Optimizer(FlatBuffers buffers, const OptimConfig& config)
    : config_(config), master_(master_mode(config, buffers.weights.scalar_type())) {
  const at::Device device = buffers.weights.device();
  int64_t codes = 0;
  int64_t states = 0;
  for (const layout::UpdateRange& r : buffers.ranges) {
    int64_t& next = r.eight_bit ? codes : states;
    ranges_.push_back({.begin = r.begin,
                       .end = r.end,
                       .grad_begin = r.grad_begin,
                       .state_begin = next,
                       .grad_is_low = r.grad_is_low,
                       .eight_bit = r.eight_bit,
                       .decay = r.decay});
    next += r.end - r.begin;
  }
  const auto zeros = [&](int64_t count, at::ScalarType type) {
    return at::zeros({count}, at::TensorOptions(type).device(device));
  };
  tensors_.state = ops::make_step_state(device);
  tensors_.weights = buffers.weights;
  tensors_.grad = buffers.grad.defined() ? buffers.grad : zeros(0, buffers.weights.scalar_type());
  tensors_.grad32 = buffers.grad32.defined() ? buffers.grad32 : zeros(0, at::kFloat);
  const auto state = [&](const char* name, int64_t count, at::ScalarType type, int64_t value = 0) {
    at::Tensor tensor = at::full({count}, value, at::TensorOptions(type).device(device));
    if (count != 0) states_.emplace_back(name, tensor);
    return tensor;
  };
  const int64_t count = buffers.weights.numel();
  tensors_.m_codes = state("m.codes", codes, at::kByte, cuda::kSignedZero);
  tensors_.m_scales = state("m.scales", codes / cuda::kAdamWBlock, at::kFloat);
  tensors_.v_codes = state("v.codes", codes, at::kByte);
  tensors_.v_scales = state("v.scales", codes / cuda::kAdamWBlock, at::kFloat);
  tensors_.m32 = state("m.fp32", states, at::kFloat);
  tensors_.v32 = state("v.fp32", states, at::kFloat);
  tensors_.remainder = state(kRemainderName, master_ == cuda::Master::split ? count : 0, at::kShort);
  tensors_.master = state(kMasterName, master_ == cuda::Master::fp32 ? count : 0, at::kFloat);
  scratch_ = zeros(ops::kNormScratch, at::kDouble);
  for (at::Tensor& late : late_) {
    late = at::empty({tensors_.state.numel()}, at::TensorOptions(at::kByte).pinned_memory(device.is_cuda()));
    late.copy_(tensors_.state);
  }
  reset_master();
}

void Optimizer::step(const cuda::StepInput& input) {
  write_input(input);
  update();
}

void Optimizer::write_input(const cuda::StepInput& input) { ops::write_step_input(tensors_.state, input); }

void Optimizer::update() {
  ops::gradient_norm(tensors_.state, scratch_, tensors_.grad, tensors_.grad32,
                     {.max_norm = config_.grad_clip, .beta1 = config_.beta1, .beta2 = config_.beta2});
  ops::adamw(tensors_, ranges_,
             {.beta1 = config_.beta1,
              .beta2 = config_.beta2,
              .eps = config_.eps,
              .weight_decay = config_.weight_decay},
             master_);
}

at::Tensor Optimizer::inverse_tokens() const {
  constexpr auto kOffset =
      static_cast<int64_t>(offsetof(cuda::StepState, input) + offsetof(cuda::StepInput, inverse_tokens));
  return tensors_.state.narrow(0, kOffset, sizeof(float)).view(at::kFloat).squeeze(0);
}

cuda::StepState Optimizer::read_state() const { return as_state(tensors_.state.cpu()); }

cuda::StepState Optimizer::read_state_late() {
  const auto now = static_cast<size_t>(late_reads_++ % 2);
  const size_t before = 1 - now;
  late_[now].copy_(tensors_.state, /*non_blocking=*/true);
  const at::Device device = tensors_.state.device();
  if (device.is_cuda()) {
    std::optional<c10::Event>& copied = copied_[now];
    if (!copied) copied.emplace(device.type());
    copied->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  if (copied_[before]) copied_[before]->synchronize();
  return as_state(late_[before]);
}

void Optimizer::write_state(const cuda::StepState& state) {
  const at::Tensor bytes = at::empty({sizeof state}, at::TensorOptions(at::kByte));
  std::memcpy(bytes.data_ptr(), &state, sizeof state);
  tensors_.state.copy_(bytes);
  for (at::Tensor& late : late_) late.copy_(bytes);
}

void Optimizer::reset_master() {
  tensors_.remainder.zero_();
  if (master_ == cuda::Master::fp32) tensors_.master.copy_(tensors_.weights);
}

}  // namespace narrowgauge::optim
