#include "lib/train/rehearsal.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>

#include "lib/train/evaluate.h"
#include "lib/train/sample.h"

namespace narrowgauge::train {
namespace {

namespace fs = std::filesystem;

// One micro-batch of one token, again and again.
class Batch {
 public:
  Batch(const Config& config, at::Device device)
      : sequences_(config.train.micro_batch),
        context_(config.data.context),
        tokens_(host_tensor({sequences_ * context_}, at::kInt, device)),
        positions_(host_tensor({sequences_ * context_}, at::kInt, device)) {
    tokens_.zero_();
    batch.sequences = sequences_;
    batch.context = context_;
    batch.tokens = tokens_.data_ptr<int32_t>();
    batch.targets = batch.tokens;
    batch.counted_targets = sequences_ * context_;
    if (!config.data.document_mask) return;
    batch.positions = positions_.data_ptr<int32_t>();
    for (int64_t i = 0; i < sequences_; ++i)
      std::iota(batch.positions + i * context_, batch.positions + (i + 1) * context_, 0);
    batch.document_starts.assign(static_cast<size_t>(sequences_), {0});
  }

  data::GlobalBatch batch;

 private:
  int64_t sequences_;
  int64_t context_;
  at::Tensor tokens_;
  at::Tensor positions_;
};

// Gradients that are not a number make the update leave everything but the step state as it is.
void rehearse_step(Session& session, Step& step) {
  const Batch one(session.config, session.device.device);
  const cuda::StepState before = session.optimizer->read_state();
  cuda::StepInput input{};
  input.inverse_tokens = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 2; ++i) step.run(one.batch, input);
  static_cast<void>(step.latest());  // waits
  session.optimizer->write_state(before);
}

void rehearse_checkpoint(Session& session) {
  const fs::path folder = session.folder.path() / "rehearsal";
  const auto remove = [&] {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  };
  remove();
  try {
    CheckpointStore store(folder);
    session.save_into(store);
    const int64_t step = session.position.step;
    const CheckpointState saved = store.read_state(step);
    store.load_tensors(step, named_weights(session.model->arena()), session.optimizer->state_tensors());
    session.optimizer->write_state(saved.step_state);
  } catch (...) {
    remove();
    throw;
  }
  remove();
}

}  // namespace

void rehearse(Session& session, Step& step) {
  const Config& config = session.config;
  rehearse_step(session, step);
  if (session.corpus.val.dataset && config.train.eval_every > 0) {
    const int64_t pass = evaluation_windows(config.data.context) * config.data.context;
    static_cast<void>(evaluate(*session.model, session.corpus.val, config.data,
                               session.corpus.end_of_document, std::min(pass, config.train.eval_tokens)));
  }
  if (config.train.sample_every > 0) {
    TrainConfig sample = config.train;
    sample.sample_tokens = std::min<int64_t>(2, sample.sample_tokens);
    static_cast<void>(sample_text(*session.model, session.corpus, sample));
  }
  rehearse_checkpoint(session);
}

}  // namespace narrowgauge::train
