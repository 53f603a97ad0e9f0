#include "lib/layout/step.h"

#include <stdexcept>

#include "lib/layout/recompute.h"
#include "lib/layout/recorder.h"

namespace narrowgauge::layout {
namespace {

// Every method mirrors one function of lib/model, operation by operation.
class Walk {
 public:
  Walk(const ModelConfig& model, const StepShape& step) : model_(model), step_(step), record_(model.layers) {}

  std::vector<Buffer> run() {
    open(Name::attention_input, 0);
    operation();  // embedding
    for (int64_t i = 0; i < model_.layers; ++i) forward(i);
    enter(kFinalEntry, kNoLayer);
    leave_layer(model_.layers - 1);
    if (!training()) {
      close(Name::final_input, kNoLayer);
      close(Name::final_rstd, kNoLayer);
    }
    if (step_.purpose != Purpose::generate) loss();
    operation();  // the loss's sums, or the logits that generation wants
    if (step_.purpose != Purpose::generate) {
      close(Name::losses, kNoLayer);
      close(Name::loss_lse, kNoLayer);
    }
    if (training()) {
      record_.begin_backward();
      backward();
    } else {
      close(Name::final_normed, kNoLayer);
    }
    if (step_.purpose != Purpose::generate) close(Name::loss_sums, kNoLayer);  // read when all is done
    return record_.take();
  }

 private:
  [[nodiscard]] bool training() const { return step_.purpose == Purpose::train; }
  [[nodiscard]] Kept kept_of(int64_t layer) const {
    return kept(training() ? step_.levels[static_cast<size_t>(layer)] : RecomputeLevel::block);
  }
  void open(Name name, int64_t layer) { record_.open(name, layer, shape_of(name, model_, step_)); }
  void close(Name name, int64_t layer) { record_.close(name, layer); }
  [[nodiscard]] bool is_open(Name name, int64_t layer) const { return record_.is_open(name, layer); }
  void close_if_open(Name name, int64_t layer) {
    if (is_open(name, layer)) close(name, layer);
  }
  void operation() { record_.operation(); }

  // Entry of a segment, fused with the sum of residual and delta. Layer 0 has nothing to sum.
  void enter(const EntryNames& names, int64_t layer) {
    if (!is_open(names.input, layer)) open(names.input, layer);
    open(names.normed, layer);
    open(names.rstd, layer);
    operation();
  }
  void normalise(const EntryNames& names, int64_t layer) {
    if (is_open(names.normed, layer)) return;
    open(names.normed, layer);
    if (!is_open(names.rstd, layer)) open(names.rstd, layer);
    operation();
  }
  // The norm's backward writes the normed rows again where they were not kept.
  void enter_backward(const EntryNames& names, int64_t layer) {
    if (!is_open(names.normed, layer)) open(names.normed, layer);
    operation();
    close(names.input, layer);
    close(names.rstd, layer);
  }
  // The next entry has read what the layer gave.
  void leave_layer(int64_t layer) {
    close(Name::ffn_delta, layer);
    if (!kept_of(layer).attention) close(Name::ffn_input, layer);
  }

  void project_qkv(Name out, int64_t layer) {
    normalise(kAttentionEntry, layer);
    open(out, layer);
    operation();
  }
  void attention_project(int64_t layer) {
    if (is_open(Name::qkv, layer)) return;
    if (model_.qk_norm) {
      if (!is_open(Name::qkv_raw, layer)) project_qkv(Name::qkv_raw, layer);
      for (const Name name : {Name::query_rstd, Name::key_rstd, Name::qkv}) open(name, layer);
      operation();  // head norms
    } else {
      project_qkv(Name::qkv, layer);
    }
    operation();  // RoPE
  }
  void attend(int64_t layer) {
    if (is_open(Name::attended, layer)) return;
    attention_project(layer);
    for (const Name name : {Name::attended, Name::lse, Name::attention_scratch}) open(name, layer);
    operation();
    close(Name::attention_scratch, layer);
  }
  void attention_output(int64_t layer) {
    attend(layer);
    open(Name::attention_delta, layer);
    operation();
  }
  void enter_feed_forward(int64_t layer) {
    enter(kFeedForwardEntry, layer);
    close(Name::attention_delta, layer);
  }
  void attention_drop(const Kept& keep, int64_t layer) {
    if (!keep.norms) close(Name::attention_normed, layer);
    if (!keep.qkv || (model_.qk_norm && !keep.norms)) {
      close(Name::qkv, layer);
      close_if_open(Name::query_rstd, layer);
      close_if_open(Name::key_rstd, layer);
    }
    if (model_.qk_norm && keep.norms) {
      open(Name::qk_raw, layer);
      operation();
    }
    if (model_.qk_norm && (!keep.qkv || keep.norms)) close(Name::qkv_raw, layer);
    if (!keep.attention) {
      for (const Name name : {Name::attention_rstd, Name::attended, Name::lse}) close(name, layer);
    }
  }

  void project_gate_up(int64_t layer) {
    if (is_open(Name::gate_up, layer)) return;
    normalise(kFeedForwardEntry, layer);
    open(Name::gate_up, layer);
    operation();
  }
  void forward(int64_t layer) {
    const Kept keep = kept_of(layer);
    enter(kAttentionEntry, layer);
    if (layer > 0) leave_layer(layer - 1);
    attention_output(layer);
    enter_feed_forward(layer);
    attention_drop(keep, layer);
    if (!training()) close(Name::attention_input, layer);
    project_gate_up(layer);
    if (!keep.norms) close(Name::ffn_normed, layer);
    open(Name::product, layer);
    operation();
    if (!keep.gate_up) close(Name::gate_up, layer);
    open(Name::ffn_delta, layer);
    operation();
    if (!keep.product) close(Name::product, layer);
    if (!keep.attention) close(Name::ffn_rstd, layer);
  }

  void loss() {
    for (const Name name : {Name::losses, Name::loss_lse, Name::loss_sums, Name::logits})
      open(name, kNoLayer);
    operation();
    close(Name::logits, kNoLayer);
  }

  void backward() {
    open(Name::dfinal, kNoLayer);
    open(Name::norm_scratch, kNoLayer);
    operation();
    for (const Name name : {Name::final_input, Name::final_normed, Name::final_rstd}) close(name, kNoLayer);
    for (int64_t i = model_.layers - 1; i >= 0; --i) backward(i);
    close(Name::norm_scratch, kNoLayer);
    operation();  // embedding
    close(Name::dinput, 0);
  }
  void backward(int64_t layer) {
    if (!is_open(Name::ffn_input, layer)) {
      attention_output(layer);
      enter_feed_forward(layer);
    }
    feed_forward_backward(layer);
    if (layer + 1 < model_.layers) {
      close(Name::dinput, layer + 1);
    } else {
      close(Name::dfinal, kNoLayer);
    }
    attention_backward(layer);
  }
  void feed_forward_backward(int64_t layer) {
    project_gate_up(layer);
    open(Name::dproduct, layer);
    operation();
    if (!is_open(Name::product, layer)) open(Name::product, layer);
    operation();  // SwiGLU
    close(Name::dproduct, layer);
    operation();  // weight gradient
    close(Name::product, layer);
    open(Name::dmiddle, layer);
    operation();
    enter_backward(kFeedForwardEntry, layer);
    operation();  // weight gradient
    close(Name::ffn_normed, layer);
    close(Name::gate_up, layer);
  }
  void attention_backward(int64_t layer) {
    attend(layer);
    attention_project(layer);
    operation();  // weight gradient
    open(Name::dattended, layer);
    operation();
    open(Name::dqkv, layer);
    open(Name::attention_backward_scratch, layer);
    operation();
    for (const Name name :
         {Name::attention_backward_scratch, Name::dattended, Name::qkv, Name::attended, Name::lse}) {
      close(name, layer);
    }
    operation();  // RoPE
    if (model_.qk_norm) {
      operation();  // head norms
      close_if_open(Name::qk_raw, layer);
      close_if_open(Name::qkv_raw, layer);
      close(Name::query_rstd, layer);
      close(Name::key_rstd, layer);
    }
    open(Name::dinput, layer);
    operation();
    enter_backward(kAttentionEntry, layer);
    close(Name::dmiddle, layer);
    operation();  // weight gradient
    close(Name::attention_normed, layer);
    close(Name::dqkv, layer);
  }

  const ModelConfig& model_;
  const StepShape& step_;
  Recorder record_;
};

}  // namespace

std::vector<Buffer> record_step(const ModelConfig& model, const StepShape& step) {
  if (step.purpose == Purpose::train && step.levels.size() != static_cast<size_t>(model.layers)) {
    throw std::invalid_argument("a training step has one recompute level a layer");
  }
  return Walk(model, step).run();
}

}  // namespace narrowgauge::layout
