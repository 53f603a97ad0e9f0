#pragma once
#include "lib/config/model_config.h"
#include "lib/config/optim_config.h"
#include "lib/layout/buffer.h"

namespace narrowgauge::layout {

// Bytes that a training run holds from start to end.
struct StaticBytes {
  int64_t weights;
  int64_t gradients;    // of the matrices
  int64_t gradients32;  // of embedding, untied head and norms
  int64_t codes;        // 8-bit m and v
  int64_t scales;       // of the codes
  int64_t states32;     // fp32 m and v
  int64_t master;       // remainder or fp32 master

  [[nodiscard]] int64_t all_gradients() const { return gradients + gradients32; }
  [[nodiscard]] int64_t optimizer() const { return codes + scales + states32 + master; }
};

// `weights`, `gradients`: element types of the weights and of the matrices' gradients.
StaticBytes static_bytes(const ModelConfig& model, const OptimConfig& optim, Element weights,
                         Element gradients);

}  // namespace narrowgauge::layout
