#include "lib/config/model_config.h"

#include "lib/config/key_types.h"

namespace narrowgauge {

int64_t ModelConfig::parameter_count() const {
  const int64_t attention = hidden_size * (qkv_width() + query_width()) + (qk_norm ? 2 * head_size() : 0);
  const int64_t feed_forward = 3 * hidden_size * ffn_size;
  const int64_t norms = 2 * hidden_size;
  const int64_t tables = (tie_embeddings ? 1 : 2) * vocab_size * hidden_size;
  return layers * (attention + feed_forward + norms) + hidden_size + tables;
}

ConfigSection model_section() {
  using M = ModelConfig;
  SectionRows<M> rows("model", "The shape of the decoder.", &Config::model);
  rows.integer("vocab_size", &M::vocab_size, between(2, 1 << 24), "tokens",
               "Number of token ids; at least what the tokenizer has.");
  rows.integer("layers", &M::layers, between(1, 1024), "",
               "Number of layers, each attention and feed-forward.");
  rows.integer("hidden_size", &M::hidden_size, between(8, 65536), "", "Width of the residual stream.");
  rows.integer("heads", &M::heads, between(1, 1024), "", "Number of query heads.");
  rows.integer("kv_heads", &M::kv_heads, between(0, 1024), "",
               "Number of key and value heads (grouped-query attention); 0: as many as heads.");
  rows.integer("head_dim", &M::head_dim, between(0, 1024), "", "Width of one head; 0: hidden_size / heads.");
  rows.integer("ffn_size", &M::ffn_size, between(8, 1 << 20), "", "Inner width of the SwiGLU feed-forward.");
  rows.number("rope_theta", &M::rope_theta, at_least(1), "", "Base of the rotary position frequencies.");
  rows.number("norm_eps", &M::norm_eps, above(0), "", "Added to the mean square inside every RMSNorm.");
  rows.boolean("qk_norm", &M::qk_norm, "Normalise every query and key head before the rotary positions.");
  rows.boolean("tie_embeddings", &M::tie_embeddings, "Use the embedding as the output head, too.");
  rows.choice(
      "init", &M::init, {"scaled", "normal"},
      "Random weights: normal draws every matrix with init_std, scaled divides it by sqrt(2 layers) where "
      "a matrix writes into the residual stream.");
  rows.number("init_std", &M::init_std, above(0), "", "Standard deviation of random weights.");
  rows.text("init_from", &M::init_from,
            "Hugging Face folder whose weights the run starts from; empty: random weights.");
  return rows.take();
}

}  // namespace narrowgauge
