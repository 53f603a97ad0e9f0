#pragma once
#include <filesystem>

#include "lib/config/model_config.h"
#include "lib/io/safetensors.h"

namespace narrowgauge::io {

// A Hugging Face folder: config.json and model.safetensors, or model.safetensors.index.json and its shards.
// Known architectures: LlamaForCausalLM, Qwen3ForCausalLM. UserError names each unsupported feature (biases,
// rope scaling, sliding windows, other activations, other architectures). init_from of the result is empty.
ModelConfig read_hugging_face_config(const std::filesystem::path& folder);

// Fills `parameters` (named as in lib/model/parameters.h, contiguous, any device and dtype) from the folder:
// queries, keys and values are packed into qkv, gate and up into gate_up. UserError for missing, unexpected
// or wrongly shaped tensors; nothing is filled then. `config` is the folder's own (read_hugging_face_config)
// or agrees with it.
void import_hugging_face(const std::filesystem::path& folder, const ModelConfig& config,
                         const std::vector<NamedTensor>& parameters);

struct ExportOptions {
  at::ScalarType dtype;    // kBFloat16 or kFloat
  int64_t max_context;     // becomes max_position_embeddings
  int32_t bos_token = -1;  // -1: null
  int32_t eos_token = -1;
  std::vector<std::filesystem::path> extra_files;  // copied beside (the tokenizer)
  bool tokenizer_prefix = false;                   // tokenizer.model puts a blank before every text
  int64_t shard_bytes = 5'000'000'000;  // a larger model is split into files of at most this many bytes
};

// Writes config.json, generation_config.json and model.safetensors (or shards with an index) that
// transformers loads. A SentencePiece tokenizer.model among the extra files gets the tokenizer_config.json
// that makes transformers load it. The folder appears whole or not at all (temporary name + rename).
// UserError for an existing non-empty folder, too little space, or a path that cannot be written.
void export_hugging_face(const std::filesystem::path& folder, const ModelConfig& config,
                         const std::vector<NamedTensor>& parameters, const ExportOptions& options);

}  // namespace narrowgauge::io
