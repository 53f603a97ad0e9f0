#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace narrowgauge::model {

// Keys (after RoPE) and values of one layer, in the model's dtype: (max_context, kv_heads, head_dim).
struct LayerCache {
  at::Tensor keys;
  at::Tensor values;
};

// Those of positions 0 .. length - 1 of one sequence, for generation. length = 0 empties it.
struct KeyValueCache {
  std::vector<LayerCache> layers;
  int64_t length = 0;
};

}  // namespace narrowgauge::model
