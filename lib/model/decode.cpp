// The transformer's forward for generation.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <stdexcept>

#include "lib/model/ends.h"
#include "lib/model/layer.h"
#include "lib/model/pass.h"
#include "lib/model/transformer.h"

namespace narrowgauge::model {

KeyValueCache Transformer::make_cache() const {
  const std::vector<int64_t> shape{options_.max_context, config_.kv_head_count(), config_.head_size()};
  KeyValueCache cache;
  for (size_t i = 0; i < layers_.size(); ++i) {
    cache.layers.push_back({.keys = at::empty(shape, arena_.weights().options()),
                            .values = at::empty(shape, arena_.weights().options())});
  }
  return cache;
}

at::Tensor Transformer::decode(const at::Tensor& tokens, KeyValueCache& cache) {
  const at::NoGradGuard no_gradient;
  const int64_t count = tokens.numel();
  const int64_t start = cache.length;
  if (count == 0 || start + count > options_.max_context || (start > 0 && count != 1)) {
    throw std::invalid_argument("decode takes a prompt into an empty cache, then one token at a time");
  }
  const auto pass = begin(layout::Purpose::generate, 1, count);
  if (start > 0) pass->positions = at::full({1}, start, tokens.options().dtype(at::kInt));
  Stream stream{.residual = embed(leaf("embedding.weight"), tokens.reshape({-1}), {}, pass), .delta = {}};
  for (size_t i = 0; i < layers_.size(); ++i) {
    stream = layers_[i]->decode(stream, *pass, start, cache.layers[i]);
  }
  cache.length += count;
  const Stream last{.residual = stream.residual.narrow(0, count - 1, 1),
                    .delta = stream.delta.narrow(0, count - 1, 1)};
  return logits(final_norm(leaf("norm.weight"), last, pass));
}

}  // namespace narrowgauge::model
