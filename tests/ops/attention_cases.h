#pragma once
// Attention, whatever the device.
#include <ATen/ops/tensor.h>

#include <string>
#include <vector>

#include "lib/ops/attention.h"
#include "tests/ops/loss_reference.h"

namespace narrowgauge::test {

struct AttentionRun {
  at::Tensor out;
  at::Tensor dqkv;
};

inline AttentionRun run_attention(const at::Tensor& qkv, const at::Tensor& dout,
                                  const ops::AttentionShape& shape, ops::AttentionKernel kernel,
                                  const ops::Documents& documents = {}, bool deterministic = false) {
  const ops::Attention attention{
      .shape = shape, .kernel = kernel, .deterministic = deterministic, .documents = documents};
  const int64_t tokens = shape.batch * shape.context;
  const ops::AttentionResult forward{
      .out = at::full({tokens, shape.heads * shape.head_dim}, kNan, qkv.options()),
      .lse = at::full({tokens * shape.heads}, kNan, qkv.options().dtype(at::kFloat))};
  const at::Tensor scratch =
      at::empty({ops::attention_scratch_bytes(attention, qkv.device())}, qkv.options().dtype(at::kByte));
  ops::attention_forward(forward, qkv, attention, scratch);
  const at::Tensor dqkv = at::full(qkv.sizes(), kNan, qkv.options());
  ops::attention_backward(dqkv, dout, qkv, forward, attention, scratch);
  return {.out = forward.out, .dqkv = dqkv};
}

inline ops::AttentionShape shape_of(int64_t batch, int64_t context, int64_t heads, int64_t kv_heads,
                                    int64_t head_dim) {
  return {.batch = batch, .context = context, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
}

inline int64_t packed_width(const ops::AttentionShape& s) { return (s.heads + 2 * s.kv_heads) * s.head_dim; }

// Boundaries of documents of the given lengths, padded to `entries`, and the document of every token.
struct DocumentLayout {
  ops::Documents documents;
  at::Tensor document_of;
};
inline DocumentLayout layout_of(const std::vector<int>& lengths, size_t entries, at::Device device) {
  std::vector<int> starts{0};
  std::vector<int64_t> ids;
  for (const int length : lengths) {
    ids.insert(ids.end(), static_cast<size_t>(length), static_cast<int64_t>(starts.size()));
    starts.push_back(starts.back() + length);
  }
  starts.resize(entries, starts.back());
  return {.documents = {.cu_seqlens = at::tensor(starts, at::kInt).to(device)},
          .document_of = at::tensor(ids).to(device)};
}

inline void check_attention(at::Device device, at::ScalarType dtype, const ops::AttentionShape& s,
                            ops::AttentionKernel kernel, const DocumentLayout& layout = {},
                            bool deterministic = false) {
  INFO(ops::attention_kernel_name(kernel)
       << " " << dtype << " B " << s.batch << " T " << s.context << " Hq " << s.heads << " Hk " << s.kv_heads
       << " D " << s.head_dim << " documents " << layout.document_of.defined() << " deterministic "
       << deterministic);
  Draws random(static_cast<uint64_t>(s.context + s.head_dim), device);
  const int64_t tokens = s.batch * s.context;
  const at::Tensor qkv = random.normal({tokens, packed_width(s)}, dtype);
  const at::Tensor dout = random.normal({tokens, s.heads * s.head_dim}, dtype);
  const AttentionRun ours = run_attention(qkv, dout, s, kernel, layout.documents, deterministic);

  const auto expected = [&](at::ScalarType compute) {
    const at::Tensor x = leaf(qkv, compute);
    const at::Tensor out = plain_attention(x, s.batch, s.heads, s.kv_heads, layout.document_of);
    (out * dout.to(compute)).sum().backward();
    return std::tuple(out.detach(), x.grad());
  };
  const auto [out, dqkv] = expected(at::kDouble);
  const auto [plain_out, plain_dqkv] = expected(dtype);
  check_as_good(ours.out, plain_out, out, "out");
  const int64_t q = s.heads * s.head_dim;
  const int64_t k = s.kv_heads * s.head_dim;
  const auto part = [](const at::Tensor& t, int64_t first, int64_t n) { return t.narrow(1, first, n); };
  CHECK(ours.dqkv.isfinite().all().item<bool>());
  if (s.context > 1) {  // with one key, dq and dk are zero and only rounding is left
    check_as_good(part(ours.dqkv, 0, q), part(plain_dqkv, 0, q), part(dqkv, 0, q), "dq");
    check_as_good(part(ours.dqkv, q, k), part(plain_dqkv, q, k), part(dqkv, q, k), "dk");
  } else {
    CHECK(part(ours.dqkv, 0, q + k).abs().max().item<float>() < 0.1f);
  }
  check_as_good(part(ours.dqkv, q + k, k), part(plain_dqkv, q + k, k), part(dqkv, q + k, k), "dv");
  const AttentionRun again = run_attention(qkv, dout, s, kernel, layout.documents, deterministic);
  CHECK(same_bits(ours.out, again.out));
  if (deterministic) CHECK(same_bits(ours.dqkv, again.dqkv));
}

// An expanded gradient (stride 0) counts as what it looks like.
inline void check_expanded_gradient(at::Device device, at::ScalarType dtype, ops::AttentionKernel kernel) {
  const auto s = shape_of(2, 33, 2, 1, 16);
  const at::Tensor qkv = Draws(1, device).normal({66, packed_width(s)}, dtype);
  const at::Tensor one = at::full({1, 1}, 0.5, qkv.options()).expand({66, 32});
  CHECK(same_bits(run_attention(qkv, one, s, kernel).dqkv,
                  run_attention(qkv, one.contiguous(), s, kernel).dqkv));
}

// Changing one document leaves the results of the others as they were, to the bit.
inline void check_no_leak(at::Device device, at::ScalarType dtype, ops::AttentionKernel kernel) {
  INFO(ops::attention_kernel_name(kernel) << " " << dtype);
  const auto s = shape_of(2, 96, 4, 2, 16);
  const DocumentLayout layout = layout_of({1, 40, 55, 96}, 9, device);
  Draws random(9, device);
  const at::Tensor qkv = random.normal({192, packed_width(s)}, dtype);
  const at::Tensor dout = random.normal({192, 64}, dtype);
  const AttentionRun before = run_attention(qkv, dout, s, kernel, layout.documents);
  const at::Tensor changed = qkv.clone();
  changed.narrow(0, 1, 40).mul_(-3);
  const AttentionRun after = run_attention(changed, dout, s, kernel, layout.documents);
  CHECK_FALSE(same_bits(before.out.narrow(0, 1, 40), after.out.narrow(0, 1, 40)));
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {41, 151}}) {
    CHECK(same_bits(before.out.narrow(0, first, count), after.out.narrow(0, first, count)));
    CHECK(same_bits(before.dqkv.narrow(0, first, count), after.dqkv.narrow(0, first, count)));
  }
}

// Masked documents against runs of their own.
inline void check_documents_alone(at::Device device, at::ScalarType dtype, ops::AttentionKernel kernel) {
  INFO(ops::attention_kernel_name(kernel) << " " << dtype);
  const std::vector<int> lengths{1, 64, 2, 133, 200};
  const auto s = shape_of(2, 200, 4, 2, 16);
  const DocumentLayout layout = layout_of(lengths, 16, device);
  Draws random(4, device);
  const at::Tensor qkv = random.normal({400, packed_width(s)}, dtype);
  const at::Tensor dout = random.normal({400, 64}, dtype);
  const AttentionRun packed = run_attention(qkv, dout, s, kernel, layout.documents);
  int64_t first = 0;
  for (const int length : lengths) {
    const auto alone = run_attention(qkv.narrow(0, first, length), dout.narrow(0, first, length),
                                     shape_of(1, length, 4, 2, 16), kernel);
    const double unit = dtype == at::kFloat ? 1e-5 : 1e-2;
    CHECK(relative_error(packed.out.narrow(0, first, length), alone.out) < unit);
    if (length > 1) CHECK(relative_error(packed.dqkv.narrow(0, first, length), alone.dqkv) < unit);
    first += length;
  }
}

}  // namespace narrowgauge::test
