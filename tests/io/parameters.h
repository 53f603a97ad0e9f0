#pragma once
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

#include "lib/io/hugging_face.h"
#include "tests/io/files.h"

namespace narrowgauge::test {

// Zeros with the names and shapes that lib/model/parameters.h lists.
inline std::vector<io::NamedTensor> make_parameters(const ModelConfig& c) {
  std::vector<io::NamedTensor> out{{"embedding.weight", at::zeros({c.vocab_size, c.hidden_size})}};
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    out.emplace_back(layer + "attention_norm.weight", at::zeros({c.hidden_size}));
    out.emplace_back(layer + "qkv.weight", at::zeros({c.qkv_width(), c.hidden_size}));
    if (c.qk_norm) out.emplace_back(layer + "q_norm.weight", at::zeros({c.head_size()}));
    if (c.qk_norm) out.emplace_back(layer + "k_norm.weight", at::zeros({c.head_size()}));
    out.emplace_back(layer + "attention_out.weight", at::zeros({c.hidden_size, c.query_width()}));
    out.emplace_back(layer + "ffn_norm.weight", at::zeros({c.hidden_size}));
    out.emplace_back(layer + "gate_up.weight", at::zeros({2 * c.ffn_size, c.hidden_size}));
    out.emplace_back(layer + "down.weight", at::zeros({c.hidden_size, c.ffn_size}));
  }
  out.emplace_back("norm.weight", at::zeros({c.hidden_size}));
  if (!c.tie_embeddings) out.emplace_back("head.weight", at::zeros({c.vocab_size, c.hidden_size}));
  return out;
}

inline io::ExportOptions fp32_options() {
  return {.dtype = at::kFloat, .max_context = 64, .extra_files = {}};
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_bytes(path));
}

}  // namespace narrowgauge::test
