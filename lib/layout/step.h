#pragma once
#include <optional>
#include <vector>

#include "cuda/device_limits.h"
#include "lib/config/memory_config.h"
#include "lib/config/model_config.h"
#include "lib/layout/buffer.h"

namespace narrowgauge::layout {

enum class Purpose : uint8_t {
  train,     // forward, loss, backward
  evaluate,  // forward and loss; nothing is kept
  generate,  // forward; the final norm of the last token alone
};

// What the sizes of a pass depend on.
struct StepShape {
  Purpose purpose = Purpose::train;
  int64_t batch = 1;
  int64_t context = 1;
  std::vector<RecomputeLevel> levels;        // one a layer; only for train
  Element element = Element::bf16;           // of activations
  int64_t loss_chunk = 4096;                 // tokens whose logits exist at once
  int64_t attention_scratch = 0;             // bytes that attention's forward asks for
  int64_t attention_backward_scratch = 0;    // and its backward; only for train
  std::optional<cuda::DeviceLimits> limits;  // of the GPU; none on the CPU

  [[nodiscard]] int64_t tokens() const { return batch * context; }
};

// The shape of every buffer, in one place.
Shape shape_of(Name name, const ModelConfig& model, const StepShape& step);

// Every buffer of the pass with its first and last use, in the order of their opening, by walking through
// embedding, layers, final norm, loss and backward as lib/model does; not placed yet. std::invalid_argument
// when the number of levels is not that of the layers.
std::vector<Buffer> record_step(const ModelConfig& model, const StepShape& step);

}  // namespace narrowgauge::layout
