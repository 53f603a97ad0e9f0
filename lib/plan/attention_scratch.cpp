#include "lib/plan/attention_scratch.h"

#include "lib/plan/choice.h"

namespace narrowgauge::plan {
namespace {

// ops::attention's math kernel: scores, probabilities and their gradient in blocks of 32 MiB.
constexpr int64_t kMathScratch = int64_t{96} << 20;

bool takes_math(const Config& config) {
  return config.train.dtype != "bf16" || config.train.attention == "math";
}

bool takes_flash(const Config& config) {
  return !takes_math(config) &&
         (config.train.attention == "flash" || config.data.document_mask || config.model.head_size() > 128);
}

// Sums of dQ in fp32, heads padded to 32 columns.
int64_t query_sums(const Config& config, int64_t heads) {
  return heads * config.data.context * ((config.model.head_size() + 31) / 32) * 32 * 4;
}

int64_t cudnn_backward(const Config& config, int64_t sequences) {
  const ModelConfig& model = config.model;
  const int64_t kv_heads = model.kv_head_count();
  const auto bytes = [&](int64_t heads) {
    const int64_t scores =
        assumes_determinism(config) ? heads * config.data.context * config.data.context * 2 : 0;
    return scores + query_sums(config, heads);
  };
  const auto fits = [&](int64_t heads) {
    return !assumes_determinism(config) || bytes(heads) <= config.memory.attention_workspace;
  };
  for (int64_t n = sequences; n >= 1; --n) {
    if (sequences % n == 0 && fits(n * model.heads)) return bytes(n * model.heads);
  }
  for (int64_t n = kv_heads - 1; n > 1; --n) {
    if (kv_heads % n == 0 && fits(n * model.heads / kv_heads)) return bytes(n * model.heads / kv_heads);
  }
  return bytes(model.heads / kv_heads);
}

}  // namespace

AttentionScratch slab_scratch(const Config& config, int64_t sequences) {
  if (takes_math(config) || takes_flash(config)) return {};
  return {.forward = 0, .backward = cudnn_backward(config, sequences)};
}

int64_t allocated_scratch(const Config& config, int64_t sequences, int sm_count) {
  if (takes_math(config)) return kMathScratch;
  if (!takes_flash(config)) return 0;
  const ModelConfig& model = config.model;
  // LibTorch's flash gives keys and values a gradient for every query head, then sums the group's.
  const int64_t grouped = model.kv_head_count() < model.heads ? 2 * model.kv_width() : 0;
  const int64_t gradients = sequences * config.data.context * (3 * model.query_width() + grouped) * 2;
  const int64_t heads = sequences * model.heads;
  const int64_t parts = assumes_determinism(config) ? (sm_count + heads - 1) / heads : 1;
  return gradients + parts * query_sums(config, heads);
}

}  // namespace narrowgauge::plan
