#include "lib/io/hugging_face_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace narrowgauge::io {

std::vector<HuggingFacePart> hugging_face_parts(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t queries = config.query_width();
  const int64_t keys = config.kv_width();
  const int64_t ffn = config.ffn_size;
  const std::vector<int64_t> head{config.head_size()};
  std::vector<HuggingFacePart> parts;
  parts.push_back({"model.embed_tokens.weight", "embedding.weight", 0, {config.vocab_size, hidden}});
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string theirs = fmt::format("model.layers.{}.", i);
    const std::string ours = fmt::format("layers.{}.", i);
    const auto add = [&](const char* name, const char* parameter, int64_t row, std::vector<int64_t> shape) {
      parts.push_back({theirs + name, ours + parameter, row, std::move(shape)});
    };
    add("input_layernorm.weight", "attention_norm.weight", 0, {hidden});
    add("self_attn.q_proj.weight", "qkv.weight", 0, {queries, hidden});
    add("self_attn.k_proj.weight", "qkv.weight", queries, {keys, hidden});
    add("self_attn.v_proj.weight", "qkv.weight", queries + keys, {keys, hidden});
    if (config.qk_norm) {
      add("self_attn.q_norm.weight", "q_norm.weight", 0, head);
      add("self_attn.k_norm.weight", "k_norm.weight", 0, head);
    }
    add("self_attn.o_proj.weight", "attention_out.weight", 0, {hidden, queries});
    add("post_attention_layernorm.weight", "ffn_norm.weight", 0, {hidden});
    add("mlp.gate_proj.weight", "gate_up.weight", 0, {ffn, hidden});
    add("mlp.up_proj.weight", "gate_up.weight", ffn, {ffn, hidden});
    add("mlp.down_proj.weight", "down.weight", 0, {hidden, ffn});
  }
  parts.push_back({"model.norm.weight", "norm.weight", 0, {hidden}});
  if (!config.tie_embeddings)
    parts.push_back({"lm_head.weight", "head.weight", 0, {config.vocab_size, hidden}});
  return parts;
}

at::Tensor view_of(const HuggingFacePart& part, const std::vector<NamedTensor>& parameters) {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const NamedTensor& tensor) { return tensor.first == part.parameter; });
  if (found == parameters.end()) throw std::logic_error("no parameter " + part.parameter);
  const at::Tensor& whole = found->second;
  const bool fits = whole.dim() == static_cast<int64_t>(part.shape.size()) &&
                    whole.sizes().slice(1) == at::IntArrayRef(part.shape).slice(1) &&
                    whole.size(0) >= part.row + part.shape[0];
  if (!fits)
    throw std::logic_error("parameter " + part.parameter + " has another shape than the config says");
  return whole.narrow(0, part.row, part.shape[0]);
}

}  // namespace narrowgauge::io
