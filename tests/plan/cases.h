#pragma once
#include <vector>

#include "lib/plan/search.h"

namespace narrowgauge::plan {

// Small configs that differ in what sizes depend on: grouped queries, QK-norm, precision, vocabulary, master,
// masks. Layers 4, context 128, 8 sequences a step.
inline std::vector<Config> small_configs() {
  Config base;
  base.model.layers = 4;
  base.model.hidden_size = 256;
  base.model.heads = 4;
  base.model.ffn_size = 704;
  base.model.vocab_size = 1000;
  base.data.context = 128;
  base.train.tokens_per_step = 1024;
  base.memory.loss_chunk = 256;
  std::vector<Config> all(5, base);
  all[1].model.kv_heads = 1;
  all[1].model.vocab_size = 8000;
  all[1].optim.master = "split";
  all[2].model.qk_norm = true;
  all[2].model.head_dim = 96;
  all[2].train.sample_every = 10;
  all[3].train.dtype = "fp32";
  all[3].model.tie_embeddings = false;
  all[4].data.document_mask = true;
  all[4].memory.grad_dtype = "fp32";
  all[4].train.deterministic = "false";
  return all;
}

inline Surroundings on_card(const char* card) {
  return {.limits = named_card(card).limits(),
          .outside = kOutsideEstimate,
          .outside_measured = false,
          .evaluation_sequences = 1,
          .attention_scratch = {}};
}

// Every way to give layers their levels when only numbers count.
inline std::vector<LevelCounts> all_counts(int64_t layers) {
  std::vector<LevelCounts> all;
  for (int64_t a = 0; a <= layers; ++a) {
    for (int64_t b = 0; a + b <= layers; ++b) {
      for (int64_t c = 0; a + b + c <= layers; ++c) {
        for (int64_t d = 0; a + b + c + d <= layers; ++d) all.push_back({layers - a - b - c - d, a, b, c, d});
      }
    }
  }
  return all;
}

inline constexpr double kGibibyte = 1073741824.0;
inline int64_t gibibytes(double count) { return static_cast<int64_t>(count * kGibibyte); }

}  // namespace narrowgauge::plan
