#include "tests/ops/rope_checks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include "lib/ops/rope.h"
#include "tests/support/catch.h"
#include "tests/support/close.h"
#include "tests/support/random.h"
#include "tests/support/reference.h"

namespace narrowgauge::test {

void check_rope(at::Device device, at::ScalarType dtype, const RopeCase& c) {
  CAPTURE(c.tokens, c.heads, c.values, c.head_dim, c.gap, c.theta, at::toString(dtype), device.str());
  Random random(device, dtype);
  const int64_t rotated = c.heads * c.head_dim;
  const at::Tensor qkv = random.strided(c.tokens, rotated + c.values * c.head_dim, c.gap);
  const at::Tensor before = qkv.clone();
  const ops::RopeTable table = ops::make_rope_table(128, c.head_dim, c.theta, device);
  const auto heads = [&](const at::Tensor& t) {
    return t.narrow(1, 0, rotated).unflatten(1, {c.heads, c.head_dim});
  };
  const auto rest = [&](const at::Tensor& t) { return t.narrow(1, rotated, c.values * c.head_dim); };
  const double rtol = dtype == at::kFloat ? 1e-6 : 0x1p-8;

  const at::Tensor consecutive = at::arange(c.tokens, at::TensorOptions().device(device).dtype(at::kInt));
  ops::rope_in_place(qkv, table, c.heads, c.head_dim, c.context, {}, /*inverse=*/false);
  const at::Tensor wrapped = consecutive.remainder(c.context);
  const at::Tensor expected = reference::rope(heads(before).to(at::kDouble), wrapped, c.theta, false);
  CHECK(mismatch(heads(qkv), expected, rtol, 1e-7) == "");
  CHECK(worse_than_plain(heads(qkv), reference::rope(heads(before), wrapped, c.theta, false), expected,
                         1e-6) == "");
  CHECK(same_bits(rest(qkv), rest(before)));

  // Documents: positions restart where the caller says; equal positions give equal bits.
  const at::Tensor restarted = consecutive.remainder(7).contiguous();
  const at::Tensor documents = before.clone();
  ops::rope_in_place(documents, table, c.heads, c.head_dim, c.context, restarted, false);
  const at::Tensor by_context = before.clone();
  ops::rope_in_place(by_context, table, c.heads, c.head_dim, 7, {}, false);
  CHECK(same_bits(documents, by_context));

  // The gradient is the inverse rotation.
  const at::Tensor x = reference::leaf(heads(before), at::kDouble);
  const at::Tensor dy = random({c.tokens, c.heads, c.head_dim});
  const at::Tensor turned = reference::rope(x, restarted, c.theta, false);
  const at::Tensor dqkv = before.clone();
  heads(dqkv).copy_(dy);
  ops::rope_in_place(dqkv, table, c.heads, c.head_dim, c.context, restarted, /*inverse=*/true);
  CHECK(mismatch(heads(dqkv), reference::gradients(turned, dy, {x})[0], rtol, 1e-7) == "");
  CHECK(same_bits(rest(dqkv), rest(before)));
}

void check_rope_properties(at::Device device) {
  constexpr int64_t kDim = 112;
  const auto options = at::TensorOptions().device(device).dtype(at::kInt);
  Random random(device, at::kFloat);
  const ops::RopeTable table = ops::make_rope_table(32768, kDim, 5e5, device);

  const at::Tensor positions = at::tensor({0, 1, 4095, 32767}, at::kInt).to(options);
  const at::Tensor x = random({4, 2 * kDim});
  const at::Tensor y = x.clone();
  ops::rope_in_place(y, table, 2, kDim, 1, positions, false);
  const at::Tensor expected = reference::rope(x.view({4, 2, kDim}).to(at::kDouble), positions, 5e5, false);
  CHECK(mismatch(y, expected.view({4, 2 * kDim}), 2e-7) == "");
  CHECK(same_bits(y.select(0, 0), x.select(0, 0)));
  CHECK(mismatch(y.norm(2, -1), x.norm(2, -1), 1e-6) == "");
  ops::rope_in_place(y, table, 2, kDim, 1, positions, true);
  CHECK(mismatch(y, x, 3e-7) == "");

  const at::Tensor query = random({1, kDim}).expand({3, kDim}).contiguous();
  const at::Tensor key = random({1, kDim}).expand({3, kDim}).contiguous();
  const auto at_positions = [&](std::initializer_list<int> list) {
    return at::tensor(list, at::kInt).to(options);
  };
  ops::rope_in_place(query, table, 1, kDim, 1, at_positions({10, 1010, 32000}), false);
  ops::rope_in_place(key, table, 1, kDim, 1, at_positions({3, 1003, 31993}), false);
  const at::Tensor scores = (query * key).sum(-1);
  CHECK(mismatch(scores, scores.select(0, 0).expand({3}), 2e-6) == "");

  CHECK_THROWS_AS(ops::rope_in_place(x, table, 3, kDim, 1, {}, false), c10::Error);
  CHECK_THROWS_AS(ops::rope_in_place(x, table, 2, kDim - 1, 1, {}, false), c10::Error);
  CHECK_THROWS_AS(ops::rope_in_place(x, table, 2, kDim, 1, positions.to(at::kLong), false), c10::Error);
  CHECK_THROWS_AS(ops::rope_in_place(x, table, 2, kDim, 0, {}, false), c10::Error);
}

}  // namespace narrowgauge::test
