#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "lib/config/model_config.h"
#include "lib/ops/linear.h"

namespace narrowgauge::model {

// What decides the shapes of a model's matrix products.
struct ProductSizes {
  int64_t rows = 0;        // tokens of a micro-batch
  int64_t loss_chunk = 0;  // tokens whose logits exist at once
  at::ScalarType dtype = at::kBFloat16;
  at::ScalarType grad_dtype = at::kBFloat16;  // of matrices; the head's gradient is fp32
};

// ops::time_linear for every linear layer of the model, each distinct shape once. The summed times are those
// of a micro-batch's forward and backward without recomputation.
ops::ProductTimings time_products(const ModelConfig& config, const ProductSizes& sizes, at::Device device,
                                  int64_t byte_limit);

}  // namespace narrowgauge::model
