// A layer's forward for generation, with a key-value cache.
#include <ATen/ops/bmm.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "lib/base/interruption.h"
#include "lib/model/buffers.h"
#include "lib/model/layer.h"
#include "lib/ops/linear.h"

namespace narrowgauge::model {
namespace {

// Attention of the one row of qkv, all query heads, over `length` cached positions: (1, A). Plain products:
// fused kernels would be planned anew for every length.
at::Tensor attend_cached(const at::Tensor& qkv, const ops::AttentionShape& shape, const LayerCache& cache,
                         int64_t length) {
  const int64_t width = shape.heads * shape.head_dim;
  const at::Tensor query =
      qkv.narrow(1, 0, width).view({shape.kv_heads, shape.heads / shape.kv_heads, shape.head_dim});
  const at::Tensor keys = cache.keys.narrow(0, 0, length).permute({1, 2, 0});   // (Hk, D, length)
  const at::Tensor values = cache.values.narrow(0, 0, length).transpose(0, 1);  // (Hk, length, D)
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  const at::Tensor scores = at::bmm(query.to(at::kFloat), keys.to(at::kFloat)).mul_(scale);
  const at::Tensor weights = at::softmax(scores, -1).to(qkv.scalar_type());
  return at::bmm(weights, values).reshape({1, width});
}

}  // namespace

Stream LayerImpl::decode(const Stream& stream, const Pass& pass, int64_t start,
                         const LayerCache& cache) const {
  interruption_point();
  const auto& [batch, context, heads, kv_heads, head_dim] = pass.attention.shape;
  AttentionKept attention;
  attention.entry = enter(stream.residual, stream.delta, weights_.attention.norm, pass.eps);
  attention_project(weights_.attention, pass, attention);
  const at::Tensor packed = attention.qkv.view({context, heads + 2 * kv_heads, head_dim});
  cache.keys.narrow(0, start, context).copy_(packed.narrow(1, heads, kv_heads));
  cache.values.narrow(0, start, context).copy_(packed.narrow(1, heads + kv_heads, kv_heads));
  if (context == 1)
    attention.attention.out = attend_cached(attention.qkv, pass.attention.shape, cache, start + 1);
  const at::Tensor attended = attention_output(weights_.attention, pass, attention);

  FeedForwardKept feed_forward;
  feed_forward.entry = enter(attention.entry.input, attended, weights_.feed_forward.norm, pass.eps);
  const at::Tensor residual = feed_forward.entry.input;
  return {residual, feed_forward_forward(weights_.feed_forward, kept(RecomputeLevel::block), feed_forward)};
}

}  // namespace narrowgauge::model
