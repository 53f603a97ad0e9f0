#pragma once
#include <filesystem>

#include "lib/config/model_config.h"
#include "lib/io/safetensors.h"

namespace narrowgauge::io {

// A Hugging Face folder: config.json and model.safetensors, or model.safetensors.index.json and its shards. Known
// architectures: LlamaForCausalLM, Qwen3ForCausalLM. UserError names each unsupported feature (biases, rope
// scaling, sliding windows, other activations, other architectures).
ModelConfig read_hugging_face_config(const std::filesystem::path& folder);

// Fills `parameters` (named as in lib/model/parameters.h, any device and dtype) from the folder: queries, keys and
// values are packed into qkv, gate and up into gate_up. Missing, unexpected or wrongly shaped tensors: UserError.
void import_hugging_face(const std::filesystem::path& folder, const ModelConfig& config,
                         const std::vector<NamedTensor>& parameters);

// Writes config.json, generation_config.json and model.safetensors (split with an index above 5 GB) that
// transformers loads. `dtype`: kBFloat16 or kFloat. The folder appears whole or not at all (temporary name + rename).
// An existing non-empty folder: UserError. max_context becomes max_position_embeddings.
struct ExportOptions {
  at::ScalarType dtype;
  int64_t max_context;
  int32_t bos_token = -1;  // -1: left out
  int32_t eos_token = -1;
  std::vector<std::filesystem::path> extra_files;  // copied beside (the tokenizer)
};
void export_hugging_face(const std::filesystem::path& folder, const ModelConfig& config,
                         const std::vector<NamedTensor>& parameters, const ExportOptions& options);

}  // namespace narrowgauge::io
