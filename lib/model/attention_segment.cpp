#include "lib/model/attention_segment.h"

#include "lib/ops/linear.h"
#include "lib/ops/rms_norm.h"

namespace narrowgauge::model {
namespace {

using layout::Name;

// The first columns of a packed row: all heads that are rotated and, with QK-norm, normalised.
int64_t rotated_heads(const Pass& pass) { return pass.attention.shape.heads + pass.attention.shape.kv_heads; }
int64_t rotated_width(const Pass& pass) { return rotated_heads(pass) * pass.attention.shape.head_dim; }

at::Tensor product_qkv(Name name, const AttentionWeights& weights, const Place& place, AttentionKept& kept) {
  normalise(kept.entry, weights.norm, place, layout::kAttentionEntry);
  at::Tensor out = place.take(name);
  ops::linear_forward(out, kept.entry.normed, weights.qkv);
  return out;
}

// kept.qkv = kept.raw with its query and key heads normalised.
void normalise_heads(const AttentionWeights& weights, const Place& place, AttentionKept& kept) {
  const auto& [batch, context, heads, kv_heads, head_dim] = place.pass.attention.shape;
  const int64_t width = rotated_width(place.pass);
  kept.query_rstd = place.take(Name::query_rstd);
  kept.key_rstd = place.take(Name::key_rstd);
  kept.qkv = place.take(Name::qkv);
  kept.qkv.narrow(1, width, kv_heads * head_dim).copy_(kept.raw.narrow(1, width, kv_heads * head_dim));
  const at::Tensor x = kept.raw.narrow(1, 0, width);
  const at::Tensor y = kept.qkv.narrow(1, 0, width);
  ops::head_norm_forward(y, kept.query_rstd, x, 0, heads, weights.query_norm, place.pass.eps);
  ops::head_norm_forward(y, kept.key_rstd, x, heads, kv_heads, weights.key_norm, place.pass.eps);
}

void attend(const AttentionWeights& weights, const Place& place, AttentionKept& kept) {
  if (kept.attention.out.defined()) return;
  attention_project(weights, place, kept);
  kept.attention = {.out = place.take(Name::attended), .lse = place.take(Name::lse)};
  ops::attention_forward(kept.attention, kept.qkv, place.pass.attention, place.take(Name::attention_scratch));
}

}  // namespace

void attention_project(const AttentionWeights& weights, const Place& place, AttentionKept& kept) {
  if (kept.qkv.defined()) return;
  const Pass& pass = place.pass;
  if (weights.query_norm.defined()) {
    if (!kept.raw.defined()) kept.raw = product_qkv(Name::qkv_raw, weights, place, kept);
    normalise_heads(weights, place, kept);
  } else {
    kept.qkv = product_qkv(Name::qkv, weights, place, kept);
  }
  ops::rope_in_place(kept.qkv, pass.rope, rotated_heads(pass), pass.attention.shape.head_dim,
                     pass.attention.shape.context, pass.positions, /*inverse=*/false);
}

at::Tensor attention_output(const AttentionWeights& weights, const Place& place, AttentionKept& kept) {
  attend(weights, place, kept);
  at::Tensor out = place.take(Name::attention_delta);
  ops::linear_forward(out, kept.attention.out, weights.out);
  return out;
}

void attention_drop(const Place& place, layout::Kept keep, AttentionKept& kept) {
  if (!keep.norms) kept.entry.normed.reset();
  const bool keep_normalised = keep.qkv && (keep.norms || !kept.raw.defined());
  if (!keep_normalised) {
    kept.qkv.reset();
    kept.query_rstd.reset();
    kept.key_rstd.reset();
  }
  if (!keep.qkv) kept.raw.reset();
  if (kept.raw.defined() && kept.qkv.defined()) {
    const at::Tensor heads = place.take(Name::qk_raw);
    heads.copy_(kept.raw.narrow(1, 0, rotated_width(place.pass)));
    kept.raw = heads;
  }
  if (!keep.attention) {
    kept.entry.rstd.reset();
    kept.attention = {};
  }
}

at::Tensor attention_backward(const AttentionWeights& weights, const AttentionWeights& gradients,
                              const Place& place, AttentionKept& kept, const at::Tensor& dresidual,
                              const at::Tensor& dout) {
  const Pass& pass = place.pass;
  const auto& [batch, context, heads, kv_heads, head_dim] = pass.attention.shape;
  attend(weights, place, kept);
  attention_project(weights, place, kept);

  ops::linear_weight_grad(gradients.out, dout, kept.attention.out);
  const at::Tensor dattended = place.take(Name::dattended);
  ops::linear_input_grad(dattended, dout, weights.out);
  const at::Tensor dqkv = place.take(Name::dqkv);
  ops::attention_backward(dqkv, dattended, kept.qkv, kept.attention, pass.attention,
                          place.take(Name::attention_backward_scratch));

  ops::rope_in_place(dqkv, pass.rope, rotated_heads(pass), head_dim, context, pass.positions,
                     /*inverse=*/true);
  if (weights.query_norm.defined()) {
    const at::Tensor x = kept.raw.narrow(1, 0, rotated_width(pass));
    const at::Tensor dx = dqkv.narrow(1, 0, rotated_width(pass));
    const at::Tensor scratch = place.norm_scratch();
    ops::head_norm_backward(dx, gradients.query_norm, dx, x, 0, heads, weights.query_norm, kept.query_rstd,
                            scratch);
    ops::head_norm_backward(dx, gradients.key_norm, dx, x, heads, kv_heads, weights.key_norm, kept.key_rstd,
                            scratch);
  }
  at::Tensor dinput = place.take(Name::dinput);
  ops::linear_input_grad(dinput, dqkv, weights.qkv);
  enter_backward(dinput, kept.entry, weights.norm, gradients.norm, dinput, dresidual, place,
                 layout::kAttentionEntry);
  ops::linear_weight_grad(gradients.qkv, dqkv, kept.entry.normed);
  kept = {};
  return dinput;
}

}  // namespace narrowgauge::model
