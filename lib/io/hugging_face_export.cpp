#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/staged_folder.h"
#include "lib/io/hugging_face.h"
#include "lib/io/hugging_face_parts.h"

namespace narrowgauge::io {
namespace {

using nlohmann::ordered_json;

ordered_json token(int32_t id) { return id < 0 ? ordered_json(nullptr) : ordered_json(id); }

// The old and the new key where transformers renamed one (theta, dtype), so that 4.x and 5.x read the same.
ordered_json config_json(const ModelConfig& config, const ExportOptions& options) {
  const char* dtype = options.dtype == at::kBFloat16 ? "bfloat16" : "float32";
  ordered_json object = {{"architectures", {config.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM"}},
                         {"model_type", config.qk_norm ? "qwen3" : "llama"},
                         {"vocab_size", config.vocab_size},
                         {"hidden_size", config.hidden_size},
                         {"intermediate_size", config.ffn_size},
                         {"num_hidden_layers", config.layers},
                         {"num_attention_heads", config.heads},
                         {"num_key_value_heads", config.kv_head_count()},
                         {"head_dim", config.head_size()},
                         {"max_position_embeddings", options.max_context},
                         {"rms_norm_eps", config.norm_eps},
                         {"rope_theta", config.rope_theta},
                         {"rope_parameters", {{"rope_theta", config.rope_theta}, {"rope_type", "default"}}},
                         {"hidden_act", "silu"},
                         {"attention_bias", false},
                         {"attention_dropout", 0.0},
                         {"tie_word_embeddings", config.tie_embeddings},
                         {"initializer_range", config.init_std},
                         {"bos_token_id", token(options.bos_token)},
                         {"eos_token_id", token(options.eos_token)},
                         {"dtype", dtype},
                         {"torch_dtype", dtype},
                         {"use_cache", true}};
  if (config.qk_norm) {
    object["use_sliding_window"] = false;
  } else {
    object["mlp_bias"] = false;
  }
  return object;
}

ordered_json generation_json(const ExportOptions& options) {
  ordered_json object = {{"_from_model_config", true}};
  if (options.bos_token >= 0) object["bos_token_id"] = options.bos_token;
  if (options.eos_token >= 0) object["eos_token_id"] = options.eos_token;
  return object;
}

void write_json(const std::filesystem::path& path, const ordered_json& object) {
  atomic_write_file(path, object.dump(2) + "\n");
}

// Consecutive tensors in as few files as the limit allows; one larger than the limit gets a file of its own.
std::vector<std::vector<NamedTensor>> split(const std::vector<NamedTensor>& tensors, int64_t element,
                                            int64_t limit) {
  std::vector<std::vector<NamedTensor>> shards(1);
  int64_t used = 0;
  for (const NamedTensor& tensor : tensors) {
    const int64_t bytes = tensor.second.numel() * element;
    if (used > 0 && used + bytes > limit) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(tensor);
    used += bytes;
  }
  return shards;
}

void write_weights(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors,
                   const ExportOptions& options, int64_t total) {
  const auto element = static_cast<int64_t>(c10::elementSize(options.dtype));
  const auto shards = split(tensors, element, options.shard_bytes);
  if (shards.size() == 1) {
    write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}}, options.dtype);
    return;
  }
  ordered_json map = ordered_json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_safetensors(folder / name, shards[i], {{"format", "pt"}}, options.dtype);
    for (const NamedTensor& tensor : shards[i]) map[tensor.first] = name;
  }
  write_json(folder / "model.safetensors.index.json",
             {{"metadata", {{"total_size", total}}}, {"weight_map", map}});
}

// What makes transformers read a SentencePiece model as it is: byte fallback, no tokens added.
ordered_json tokenizer_json(const ExportOptions& options) {
  return {{"tokenizer_class", "LlamaTokenizer"},
          {"legacy", false},
          {"add_bos_token", false},
          {"add_eos_token", false},
          {"add_prefix_space", options.tokenizer_prefix},
          {"clean_up_tokenization_spaces", false},
          {"bos_token", "<s>"},
          {"eos_token", "</s>"},
          {"unk_token", "<unk>"},
          {"model_max_length", options.max_context}};
}

bool has_file(const ExportOptions& options, const char* name) {
  return std::any_of(options.extra_files.begin(), options.extra_files.end(),
                     [&](const std::filesystem::path& file) { return file.filename() == name; });
}

void copy_beside(const std::filesystem::path& from, const std::filesystem::path& folder) {
  atomic_write_file(folder / from.filename(), read_file(from));
}

}  // namespace

void export_hugging_face(const std::filesystem::path& folder, const ModelConfig& config,
                         const std::vector<NamedTensor>& parameters, const ExportOptions& options) {
  if (options.dtype != at::kBFloat16 && options.dtype != at::kFloat) {
    throw std::invalid_argument("export_hugging_face: dtype must be bf16 or fp32");
  }
  std::error_code error;
  if (std::filesystem::exists(folder, error) && !std::filesystem::is_empty(folder, error)) {
    throw UserError(
        fmt::format("{} exists and is not empty: choose another folder, or remove it", folder.string()));
  }
  std::vector<NamedTensor> tensors;
  int64_t total = 0;
  for (const HuggingFacePart& part : hugging_face_parts(config)) {
    tensors.emplace_back(part.name, view_of(part, parameters));
    total += tensors.back().second.numel() * static_cast<int64_t>(c10::elementSize(options.dtype));
  }
  require_free_space(folder, total, "free some space or choose another folder");
  StagedFolder temporary(folder);
  write_json(temporary.path() / "config.json", config_json(config, options));
  write_json(temporary.path() / "generation_config.json", generation_json(options));
  write_weights(temporary.path(), tensors, options, total);
  if (has_file(options, "tokenizer.model") && !has_file(options, "tokenizer_config.json")) {
    write_json(temporary.path() / "tokenizer_config.json", tokenizer_json(options));
  }
  for (const std::filesystem::path& file : options.extra_files) copy_beside(file, temporary.path());
  temporary.publish();
}

}  // namespace narrowgauge::io
