#include "lib/model/attention_segment.h"

#include "lib/model/buffers.h"
#include "lib/ops/linear.h"
#include "lib/ops/rms_norm.h"

namespace narrowgauge::model {
namespace {

// The first columns of a packed row: all heads that are rotated and, with QK-norm, normalised.
int64_t rotated_heads(const Pass& pass) { return pass.attention.shape.heads + pass.attention.shape.kv_heads; }
int64_t rotated_width(const Pass& pass) { return rotated_heads(pass) * pass.attention.shape.head_dim; }

at::Tensor product_qkv(const AttentionWeights& weights, const Pass& pass, AttentionKept& kept) {
  normalise(kept.entry, weights.norm, pass.eps);
  at::Tensor out = take({kept.entry.normed.size(0), weights.qkv.size(0)}, kept.entry.normed);
  ops::linear_forward(out, kept.entry.normed, weights.qkv);
  return out;
}

// kept.qkv = kept.raw with its query and key heads normalised.
void normalise_heads(const AttentionWeights& weights, const Pass& pass, AttentionKept& kept) {
  const auto& [batch, context, heads, kv_heads, head_dim] = pass.attention.shape;
  const int64_t tokens = kept.raw.size(0);
  const int64_t width = rotated_width(pass);
  kept.query_rstd = take({tokens, heads}, kept.raw, at::kFloat);
  kept.key_rstd = take({tokens, kv_heads}, kept.raw, at::kFloat);
  kept.qkv = take(kept.raw.sizes(), kept.raw);
  kept.qkv.narrow(1, width, kv_heads * head_dim).copy_(kept.raw.narrow(1, width, kv_heads * head_dim));
  const at::Tensor x = kept.raw.narrow(1, 0, width);
  const at::Tensor y = kept.qkv.narrow(1, 0, width);
  ops::head_norm_forward(y, kept.query_rstd, x, 0, heads, weights.query_norm, pass.eps);
  ops::head_norm_forward(y, kept.key_rstd, x, heads, kv_heads, weights.key_norm, pass.eps);
}

at::Tensor take_scratch(const Pass& pass, const at::Tensor& like) {
  return take({ops::attention_scratch_bytes(pass.attention, like.device())}, like, at::kByte);
}

void attend(const AttentionWeights& weights, const Pass& pass, AttentionKept& kept) {
  if (kept.attention.out.defined()) return;
  attention_project(weights, pass, kept);
  const ops::AttentionShape& shape = pass.attention.shape;
  const int64_t tokens = kept.qkv.size(0);
  kept.attention = {.out = take({tokens, shape.heads * shape.head_dim}, kept.qkv),
                    .lse = take({tokens * shape.heads}, kept.qkv, at::kFloat)};
  ops::attention_forward(kept.attention, kept.qkv, pass.attention, take_scratch(pass, kept.qkv));
}

}  // namespace

void attention_project(const AttentionWeights& weights, const Pass& pass, AttentionKept& kept) {
  if (kept.qkv.defined()) return;
  if (weights.query_norm.defined()) {
    if (!kept.raw.defined()) kept.raw = product_qkv(weights, pass, kept);
    normalise_heads(weights, pass, kept);
  } else {
    kept.qkv = product_qkv(weights, pass, kept);
  }
  ops::rope_in_place(kept.qkv, pass.rope, rotated_heads(pass), pass.attention.shape.head_dim,
                     pass.attention.shape.context, pass.positions, /*inverse=*/false);
}

at::Tensor attention_output(const AttentionWeights& weights, const Pass& pass, AttentionKept& kept) {
  attend(weights, pass, kept);
  at::Tensor out = take(kept.entry.input.sizes(), kept.entry.input);
  ops::linear_forward(out, kept.attention.out, weights.out);
  return out;
}

void attention_drop(const Pass& pass, Kept keep, AttentionKept& kept) {
  if (!keep.norms) kept.entry.normed.reset();
  const bool keep_normalised = keep.qkv && (keep.norms || !kept.raw.defined());
  if (!keep_normalised) {
    kept.qkv.reset();
    kept.query_rstd.reset();
    kept.key_rstd.reset();
  }
  if (!keep.qkv) kept.raw.reset();
  if (kept.raw.defined() && kept.qkv.defined()) {
    kept.raw = kept.raw.narrow(1, 0, rotated_width(pass)).contiguous();
  }
  if (!keep.attention) {
    kept.entry.rstd.reset();
    kept.attention = {};
  }
}

at::Tensor attention_backward(const AttentionWeights& weights, const AttentionWeights& gradients,
                              const Pass& pass, AttentionKept& kept, const at::Tensor& dresidual,
                              const at::Tensor& dout) {
  const auto& [batch, context, heads, kv_heads, head_dim] = pass.attention.shape;
  attend(weights, pass, kept);
  attention_project(weights, pass, kept);
  normalise(kept.entry, weights.norm, pass.eps);

  ops::linear_weight_grad(gradients.out, dout, kept.attention.out);
  at::Tensor dattention = take(kept.attention.out.sizes(), dout);
  ops::linear_input_grad(dattention, dout, weights.out);
  at::Tensor dqkv = take(kept.qkv.sizes(), dout);
  ops::attention_backward(dqkv, dattention, kept.qkv, kept.attention, pass.attention,
                          take_scratch(pass, kept.qkv));
  dattention.reset();
  kept.qkv.reset();
  kept.attention = {};

  ops::rope_in_place(dqkv, pass.rope, rotated_heads(pass), head_dim, context, pass.positions,
                     /*inverse=*/true);
  if (weights.query_norm.defined()) {
    const at::Tensor x = kept.raw.narrow(1, 0, rotated_width(pass));
    const at::Tensor dx = dqkv.narrow(1, 0, rotated_width(pass));
    ops::head_norm_backward(dx, gradients.query_norm, dx, x, 0, heads, weights.query_norm, kept.query_rstd);
    ops::head_norm_backward(dx, gradients.key_norm, dx, x, heads, kv_heads, weights.key_norm, kept.key_rstd);
    kept.raw.reset();
  }
  ops::linear_weight_grad(gradients.qkv, dqkv, kept.entry.normed);
  kept.entry.normed.reset();
  at::Tensor dinput = take(dout.sizes(), dout);
  ops::linear_input_grad(dinput, dqkv, weights.qkv);
  enter_backward(dinput, kept.entry, weights.norm, gradients.norm, dinput, dresidual);
  return dinput;
}

}  // namespace narrowgauge::model
