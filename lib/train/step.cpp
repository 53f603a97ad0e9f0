#include "lib/train/step.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "lib/base/interruption.h"
#include "lib/ops/sum.h"
#include "lib/train/device.h"

namespace narrowgauge::train {
namespace {

constexpr Graphs::Key kUpdate{0, 0};

// Micro-batches with the same key have the same shapes and addresses.
Graphs::Key key_of(const model::Batch& piece) {
  const at::Tensor& boundaries = piece.documents.cu_seqlens;
  return {piece.tokens.size(0), boundaries.defined() ? boundaries.size(0) : 0};
}

}  // namespace

Step::Step(model::Transformer& model, optim::Optimizer& optimizer, int64_t sequences, int64_t micro_batch,
           bool cuda_graphs)
    : model_(model),
      optimizer_(optimizer),
      micro_batch_(micro_batch),
      batch_(model.options().device, sequences, model.options().max_context, model.options().document_mask),
      graphs_(model.options().device, cuda_graphs) {
  const at::Device device = model.options().device;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(device);
  sums_ = at::zeros({3}, fp32);
  one_ = at::ones({}, fp32);
  for (int i = 0; i < 2; ++i) {
    late_.push_back({.host = host_tensor({3}, at::kFloat, device), .fence = Fence(device)});
  }
  for (size_t i = 0; i < kMicroBatchesAhead; ++i) ends_.emplace_back(device);
}

bool Step::run(const data::GlobalBatch& batch, const cuda::StepInput& input,
               const std::function<bool(double)>& go_on) {
  bool done = false;
  graphs_.on_stream([&] { done = queue(batch, input, go_on); });
  return done;
}

bool Step::queue(const data::GlobalBatch& batch, const cuda::StepInput& input,
                 const std::function<bool(double)>& go_on) {
  optimizer_.write_input(input);
  batch_.upload(batch, batch.sequences, micro_batch_);
  model_.arena().zero_gradients();
  sums_.zero_();
  if (!accumulate(go_on)) return false;
  graphs_.run(kUpdate, [&] { optimizer_.update(); });
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
      Fence& end = ends_[end_];
      end.wait();
      if (go_on && !go_on(static_cast<double>(i) / static_cast<double>(pieces))) return false;
      if (const void* slab = model_.slab_address(); slab != slab_) {
        graphs_.forget();
        slab_ = slab;
      }
      const model::Batch piece = batch_.piece(i);
      graphs_.run(key_of(piece), [&] { add_gradients(piece); });
      end.record();
      end_ = (end_ + 1) % kMicroBatchesAhead;
    }
  } catch (const Interrupted&) {
    return false;
  }
  return true;
}

void Step::add_gradients(const model::Batch& piece) {
  const ops::LossSums sums = model_.loss(piece, optimizer_.inverse_tokens());
  sums.loss.backward(one_);
  ops::sum_into({{.out = sums_.select(0, 0), .x = sums.loss},
                 {.out = sums_.select(0, 1), .x = sums.lse},
                 {.out = sums_.select(0, 2), .x = sums.lse_squared}});
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
