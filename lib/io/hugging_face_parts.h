#pragma once
#include <string>
#include <vector>

#include "lib/config/model_config.h"
#include "lib/io/safetensors.h"

namespace narrowgauge::io {

// One tensor of a Hugging Face file: rows row .. row + shape[0] of one of our parameters.
struct HuggingFacePart {
  std::string name;       // theirs
  std::string parameter;  // ours
  int64_t row;
  std::vector<int64_t> shape;
};

// Every tensor of a Llama or (qk_norm) Qwen3 file, in forward order. A tied head is left out.
std::vector<HuggingFacePart> hugging_face_parts(const ModelConfig& config);

// The view of a parameter that a part stands for. std::logic_error when the parameter is missing or has
// another shape.
at::Tensor view_of(const HuggingFacePart& part, const std::vector<NamedTensor>& parameters);

}  // namespace narrowgauge::io
