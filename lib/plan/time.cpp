#include "lib/plan/time.h"

#include <algorithm>

#include "lib/layout/recompute.h"
#include "lib/layout/static_bytes.h"
#include "lib/plan/memory.h"

namespace narrowgauge::plan {
namespace {

// Bytes a second of kernels that only move them, as a part of a copy's: README, Measured.
constexpr double kElementwise = 0.88;
constexpr double kLoss = 0.84;
constexpr double kOptimizer = 0.94;
constexpr double kEmbedding = 0.2;  // rows are gathered, and added in the order of their tokens

// Kernels of a layer that recomputes nothing, forward and backward; of a chunk of the loss; of the ends.
constexpr int64_t kLayerLaunches = 30;
constexpr int64_t kChunkLaunches = 4;
constexpr int64_t kEndLaunches = 8;

double number(int64_t count) { return static_cast<double>(count); }

// Sums the work of one micro-batch.
class Sum {
 public:
  Sum(const Config& config, const Rates& rates, int64_t sequences)
      : config_(config),
        rates_(rates),
        sequences_(sequences),
        tokens_(sequences * config.data.context),
        fp32_(config.train.dtype == "fp32") {}

  [[nodiscard]] const StepTime& time() const { return time_; }
  [[nodiscard]] int64_t element() const { return fp32_ ? 4 : 2; }
  [[nodiscard]] int64_t tokens() const { return tokens_; }

  void product(Work work, int64_t rows, int64_t in, int64_t out, bool fp32_gradient = false) {
    const int64_t gradient = fp32_ || fp32_gradient || config_.memory.grad_dtype == "fp32" ? 4 : 2;
    time_.products +=
        rates_.seconds({.work = work,
                        .rows = rows,
                        .shape = {in, out, work == Work::product_weight_grad ? gradient : 0, 0}});
  }
  void linear(int64_t in, int64_t out) {
    for (const Work work : {Work::product, Work::product_input_grad, Work::product_weight_grad}) {
      product(work, tokens_, in, out);
    }
  }
  void attention(Work work) {
    const ModelConfig& model = config_.model;
    time_.attention += rates_.seconds(
        {.work = work,
         .rows = sequences_,
         .shape = {config_.data.context, model.heads, model.kv_head_count(), model.head_size()}});
  }
  // `elements` of activations for each token.
  void elementwise(int64_t elements) {
    time_.elementwise += moved(tokens_ * elements * element(), kElementwise);
  }
  void loss(double bytes) { time_.loss += moved(static_cast<int64_t>(bytes), kLoss); }
  void embedding(int64_t bytes) { time_.embedding += moved(bytes, kEmbedding); }
  void launches(int64_t count) {
    time_.gaps += rates_.seconds({.work = Work::launch, .rows = count, .shape = {}});
  }
  [[nodiscard]] double moved(int64_t bytes, double of_copy) const {
    return rates_.seconds({.work = Work::traffic, .rows = bytes, .shape = {}}) / of_copy;
  }

 private:
  const Config& config_;
  const Rates& rates_;
  int64_t sequences_;
  int64_t tokens_;
  bool fp32_;
  StepTime time_;
};

// A layer forward and backward with everything kept (the kernels' headers in cuda/ say what they read and
// write).
void add_layer(Sum& sum, const Config& config) {
  const ModelConfig& model = config.model;
  const int64_t H = model.hidden_size;
  const int64_t A = model.query_width();
  const int64_t K = model.kv_width();
  const int64_t F = model.ffn_size;
  sum.linear(H, A + 2 * K);
  sum.linear(A, H);
  sum.linear(H, 2 * F);
  sum.linear(F, H);
  sum.attention(Work::attention);
  sum.attention(assumes_determinism(config) ? Work::attention_backward_deterministic
                                            : Work::attention_backward);
  // Two norms with residual, forward and backward: 4 of 4 tensors; RoPE in place twice; SwiGLU forward
  // reads 2 and writes 1, backward reads 3 and writes 2.
  sum.elementwise(16 * H + 4 * (A + K) + 8 * F);
  if (model.qk_norm) sum.elementwise(2 * (A + 2 * K) + 2 * (A + K) + 3 * (A + K));  // copy, norm, backward
  sum.launches(kLayerLaunches);
}

// What backward of a layer adds at a level (lib/model: *_segment.cpp, residual_norm.cpp).
void add_recompute(Sum& sum, const Config& config, RecomputeLevel level) {
  const ModelConfig& model = config.model;
  const int64_t H = model.hidden_size;
  const int64_t A = model.query_width();
  const int64_t K = model.kv_width();
  const int64_t F = model.ffn_size;
  const layout::Kept kept = layout::kept(level);
  const bool qk_norm_again = model.qk_norm && !kept.norms;  // head norms and RoPE
  if (!kept.product) sum.elementwise(F);                    // written by SwiGLU's backward
  if (!kept.norms) sum.elementwise((kept.gate_up ? H : 2 * H) + (kept.qkv ? H : 2 * H));  // by the norms'
  if (!kept.gate_up) {
    sum.product(Work::product, sum.tokens(), H, 2 * F);
    sum.launches(2);
  }
  if (!kept.qkv) {
    sum.product(Work::product, sum.tokens(), H, A + 2 * K);
    sum.launches(2);
  }
  if (!kept.qkv || qk_norm_again) {
    sum.elementwise(2 * (A + K));  // RoPE
    sum.launches(1);
  }
  if (qk_norm_again) {
    sum.elementwise(2 * (A + 2 * K) + 2 * (A + K));
    sum.launches(3);
  }
  if (!kept.attention) {
    sum.attention(Work::attention);
    sum.product(Work::product, sum.tokens(), A, H);
    sum.elementwise(2 * H);  // the norm between the segments adds the residual again
    sum.launches(3);
  }
}

void add_ends(Sum& sum, const Config& config, int64_t loss_chunk) {
  const int64_t H = config.model.hidden_size;
  const int64_t V = config.model.vocab_size;
  for (int64_t done = 0; done < sum.tokens(); done += loss_chunk) {
    const int64_t rows = std::min(loss_chunk, sum.tokens() - done);
    for (const Work work : {Work::product, Work::product_input_grad, Work::product_weight_grad}) {
      sum.product(work, rows, H, V, /*fp32_gradient=*/true);
    }
    sum.launches(kChunkLaunches);
  }
  sum.loss(2 * number(sum.tokens()) * number(V) * number(sum.element()));
  sum.elementwise((4 + 4) * H);  // final norm
  sum.embedding(sum.tokens() * H * (3 * sum.element() + 8));
  sum.launches(kEndLaunches);
}

}  // namespace

double model_flops_per_token(const ModelConfig& config, int64_t context) {
  const auto attention = static_cast<double>(config.layers) * static_cast<double>(config.query_width()) *
                         static_cast<double>(context);
  return 6.0 * static_cast<double>(config.parameter_count()) + 6.0 * attention;
}

void StepTime::add(const StepTime& other, double times) {
  products += other.products * times;
  attention += other.attention * times;
  elementwise += other.elementwise * times;
  loss += other.loss * times;
  embedding += other.embedding * times;
  optimizer += other.optimizer * times;
  gaps += other.gaps * times;
  recompute += other.recompute * times;
}

StepTime TimeModel::level(int64_t micro_batch, RecomputeLevel level) const {
  Sum sum(config_, rates_, micro_batch);
  add_recompute(sum, config_, level);
  StepTime one = sum.time();
  one.recompute = one.total();
  StepTime all;
  all.add(one, number(sequences(config_)) / number(micro_batch));
  return all;
}

StepTime TimeModel::base(int64_t micro_batch, int64_t loss_chunk) const {
  Sum layer(config_, rates_, micro_batch);
  add_layer(layer, config_);
  Sum ends(config_, rates_, micro_batch);
  add_ends(ends, config_, loss_chunk);
  const double passes = number(sequences(config_)) / number(micro_batch);
  StepTime all;
  all.add(layer.time(), passes * number(config_.model.layers));
  all.add(ends.time(), passes);
  // The update reads weights and states and writes them; gradients are cleared, and read twice.
  const layout::StaticBytes fixed = static_bytes(config_);
  all.optimizer =
      ends.moved(2 * fixed.weights + 3 * fixed.all_gradients() + 2 * fixed.optimizer(), kOptimizer);
  return all;
}

StepTime TimeModel::step(const Choice& choice) const {
  StepTime time = base(choice.micro_batch, choice.loss_chunk);
  const LevelCounts counts = count_levels(choice.levels);
  for (size_t i = 0; i < kLevelCount; ++i) {
    if (counts[i] > 0) time.add(level(choice.micro_batch, kLevels[i]), number(counts[i]));
  }
  return time;
}

double TimeModel::tokens_per_second(double step_seconds) const {
  return number(config_.train.tokens_per_step) / step_seconds;
}

}  // namespace narrowgauge::plan
