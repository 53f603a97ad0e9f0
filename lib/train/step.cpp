#include "lib/train/step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "lib/base/interruption.h"
#include "lib/train/device.h"

namespace narrowgauge::train {

Step::Step(model::Transformer& model, optim::Optimizer& optimizer, int64_t sequences, int64_t micro_batch)
    : model_(model),
      optimizer_(optimizer),
      micro_batch_(micro_batch),
      batch_(model.options().device, sequences, model.options().max_context, model.options().document_mask) {
  const at::Device device = model.options().device;
  sums_ = at::zeros({3}, at::TensorOptions().dtype(at::kFloat).device(device));
  for (int i = 0; i < 2; ++i) {
    late_.push_back({.host = host_tensor({3}, at::kFloat, device), .fence = Fence(device)});
  }
}

bool Step::run(const data::GlobalBatch& batch, const cuda::StepInput& input,
               const std::function<bool(double)>& go_on) {
  wait_for_upload();
  optimizer_.write_input(input);
  batch_.upload(batch, batch.sequences, micro_batch_);
  model_.arena().zero_gradients();
  sums_.zero_();
  if (!accumulate(go_on)) return false;
  optimizer_.update();
  previous_state_ = optimizer_.read_state_late();
  slot_ = 1 - slot_;
  late_[slot_].host.copy_(sums_, /*non_blocking=*/true);
  late_[slot_].fence.record();
  return true;
}

bool Step::accumulate(const std::function<bool(double)>& go_on) {
  const int64_t pieces = batch_.pieces();
  try {
    for (int64_t i = 0; i < pieces; ++i) {
      if (go_on && !go_on(static_cast<double>(i) / static_cast<double>(pieces))) return false;
      const ops::LossSums sums = model_.loss(batch_.piece(i), optimizer_.inverse_tokens());
      sums.loss.backward();
      const at::NoGradGuard no_grad;
      sums_.select(0, 0).add_(sums.loss.detach());
      sums_.select(0, 1).add_(sums.lse.detach());
      sums_.select(0, 2).add_(sums.lse_squared.detach());
    }
  } catch (const Interrupted&) {
    return false;
  }
  return true;
}

StepResult Step::read(size_t slot, const cuda::StepState& state) const {
  late_[slot].fence.wait();
  const float* sums = late_[slot].host.const_data_ptr<float>();
  const double weight = model_.options().loss.z_loss;
  const double z_loss = weight > 0 ? weight * sums[2] : 0;
  return {.loss_sum = sums[0] - z_loss, .z_loss_sum = z_loss, .lse_sum = sums[1], .state = state};
}

StepResult Step::previous() const { return read(1 - slot_, previous_state_); }

StepResult Step::latest() const { return read(slot_, optimizer_.read_state()); }

}  // namespace narrowgauge::train
