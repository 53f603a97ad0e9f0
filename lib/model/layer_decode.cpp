// A layer's forward for generation, with a key-value cache.
#include <ATen/ops/bmm.h>
#include <ATen/ops/softmax.h>

#include <array>
#include <cmath>

#include "lib/base/interruption.h"
#include "lib/model/layer.h"
#include "lib/ops/linear.h"

namespace narrowgauge::model {
namespace {

// out (1, A) = attention of the one row of qkv, all query heads, over `length` cached positions. Plain
// products: fused kernels would be planned anew for every length.
void attend_cached(const at::Tensor& out, const at::Tensor& qkv, const ops::AttentionShape& shape,
                   const LayerCache& cache, int64_t length) {
  const int64_t width = shape.heads * shape.head_dim;
  const std::array<int64_t, 3> groups{shape.kv_heads, shape.heads / shape.kv_heads, shape.head_dim};
  const at::Tensor query = qkv.narrow(1, 0, width).view(groups);
  const at::Tensor keys = cache.keys.narrow(0, 0, length).permute({1, 2, 0});   // (Hk, D, length)
  const at::Tensor values = cache.values.narrow(0, 0, length).transpose(0, 1);  // (Hk, length, D)
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  const at::Tensor scores = at::bmm(query.to(at::kFloat), keys.to(at::kFloat)).mul_(scale);
  const at::Tensor weights = at::softmax(scores, -1).to(qkv.scalar_type());
  at::Tensor attended = out.view(groups);
  at::bmm_out(attended, weights, values);
}

}  // namespace

Stream LayerImpl::decode(const Stream& stream, const Pass& pass, int64_t start,
                         const LayerCache& cache) const {
  interruption_point();
  const auto& [batch, context, heads, kv_heads, head_dim] = pass.attention.shape;
  const Place place{pass, index_, layout::Phase::forward};
  AttentionKept attention;
  attention.entry =
      enter(stream.residual, stream.delta, weights_.attention.norm, place, layout::kAttentionEntry);
  attention_project(weights_.attention, place, attention);
  const at::Tensor packed = attention.qkv.view({context, heads + 2 * kv_heads, head_dim});
  cache.keys.narrow(0, start, context).copy_(packed.narrow(1, heads, kv_heads));
  cache.values.narrow(0, start, context).copy_(packed.narrow(1, heads + kv_heads, kv_heads));
  if (context == 1) {
    attention.attention.out = place.take(layout::Name::attended);
    attend_cached(attention.attention.out, attention.qkv, pass.attention.shape, cache, start + 1);
  }
  const at::Tensor attended = attention_output(weights_.attention, place, attention);

  FeedForwardKept feed_forward;
  feed_forward.entry =
      enter(attention.entry.input, attended, weights_.feed_forward.norm, place, layout::kFeedForwardEntry);
  const at::Tensor residual = feed_forward.entry.input;
  return {residual, feed_forward_forward(weights_.feed_forward, place, layout::kept(RecomputeLevel::block),
                                         feed_forward)};
}

}  // namespace narrowgauge::model
