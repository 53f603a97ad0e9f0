#include "lib/model/time_products.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/layout/step.h"

namespace narrowgauge::model {
namespace {

// Shapes with the number of their uses in a micro-batch.
using UsedShapes = std::vector<std::pair<ops::LinearShape, double>>;

void add_use(UsedShapes& all, const ops::LinearShape& shape, int64_t uses) {
  if (shape.rows == 0 || uses == 0) return;
  const auto same =
      std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.first == shape; });
  if (same != all.end()) {
    same->second += static_cast<double>(uses);
  } else {
    all.emplace_back(shape, static_cast<double>(uses));
  }
}

UsedShapes linear_shapes(const ModelConfig& config, const ProductSizes& sizes) {
  UsedShapes all;
  const auto layer = [&](int64_t in, int64_t out) {
    add_use(all,
            {.rows = sizes.rows,
             .in = in,
             .out = out,
             .y_stride = out,
             .dtype = sizes.dtype,
             .grad_dtype = sizes.grad_dtype},
            config.layers);
  };
  layer(config.hidden_size, config.qkv_width());
  layer(config.query_width(), config.hidden_size);
  layer(config.hidden_size, 2 * config.ffn_size);
  layer(config.ffn_size, config.hidden_size);
  layout::StepShape step;
  step.context = sizes.rows;
  step.element = sizes.dtype == at::kFloat ? layout::Element::fp32 : layout::Element::bf16;
  step.loss_chunk = sizes.loss_chunk;
  const layout::Shape logits = layout::shape_of(layout::Name::logits, config, step);
  const auto head = [&](int64_t rows, int64_t uses) {
    add_use(all,
            {.rows = rows,
             .in = config.hidden_size,
             .out = config.vocab_size,
             .y_stride = logits.stride,
             .dtype = sizes.dtype,
             .grad_dtype = at::kFloat},
            uses);
  };
  head(logits.rows, sizes.rows / logits.rows);
  head(sizes.rows % logits.rows, 1);
  return all;
}

}  // namespace

ops::ProductTimings time_products(const ModelConfig& config, const ProductSizes& sizes, at::Device device,
                                  int64_t byte_limit) {
  ops::ProductTimings all;
  for (const auto& [shape, uses] : linear_shapes(config, sizes)) {
    all.add(ops::time_linear(shape, device, byte_limit), uses);
  }
  return all;
}

}  // namespace narrowgauge::model
