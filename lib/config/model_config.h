#pragma once
#include <cstdint>
#include <string>

namespace narrowgauge {

// A LLaMA-style decoder. Legend of the letters used in the code: V vocabulary, L layers, H hidden,
// F feed-forward, D head_dim, A = heads * D (width of queries), K = kv_heads * D.
struct ModelConfig {
  int64_t vocab_size = 32000;
  int64_t layers = 24;
  int64_t hidden_size = 1792;
  int64_t heads = 16;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden_size / heads
  int64_t ffn_size = 4736;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  bool qk_norm = false;  // RMSNorm of every query and key head before RoPE
  bool tie_embeddings = true;
  std::string init = "scaled";  // scaled | normal
  double init_std = 0.02;
  std::string init_from;  // Hugging Face folder; empty: random weights

  // With the zeros above resolved.
  [[nodiscard]] int64_t kv_head_count() const { return kv_heads == 0 ? heads : kv_heads; }
  [[nodiscard]] int64_t head_size() const { return head_dim == 0 ? hidden_size / heads : head_dim; }
  [[nodiscard]] int64_t query_width() const { return heads * head_size(); }
  [[nodiscard]] int64_t kv_width() const { return kv_head_count() * head_size(); }
  [[nodiscard]] int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
  // Trained numbers; a tied embedding counts once.
  [[nodiscard]] int64_t parameter_count() const;
};

}  // namespace narrowgauge
