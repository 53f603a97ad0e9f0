#include "lib/ops/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "cuda/rope.h"
#include "lib/ops/device.h"
#include "lib/ops/dispatch.h"

namespace narrowgauge::ops {
namespace {

void check(const at::Tensor& qkv, const RopeTable& table, int64_t heads, int64_t head_dim, int64_t context,
           const at::Tensor& positions) {
  TORCH_CHECK(qkv.dim() == 2 && (qkv.size(1) == 1 || qkv.stride(1) == 1),
              "rope: qkv must be (tokens, W) with a contiguous last dimension");
  TORCH_CHECK(head_dim >= 2 && head_dim % 2 == 0, "rope: head_dim must be even, got ", head_dim);
  TORCH_CHECK(heads >= 0 && heads * head_dim <= qkv.size(1), "rope: ", heads, " heads of ", head_dim,
              " do not fit a row of ", qkv.size(1));
  for (const at::Tensor& t : {table.cos, table.sin}) {
    TORCH_CHECK(t.dim() == 2 && t.size(1) == head_dim / 2 && t.is_contiguous() &&
                    t.scalar_type() == at::kFloat && t.device() == qkv.device(),
                "rope: the tables must be contiguous fp32 (positions, head_dim / 2) on qkv's device");
  }
  TORCH_CHECK(table.cos.size(0) == table.sin.size(0), "rope: the tables have different lengths");
  if (positions.defined()) {
    TORCH_CHECK(positions.dim() == 1 && positions.size(0) == qkv.size(0) && positions.is_contiguous() &&
                    positions.scalar_type() == at::kInt && positions.device() == qkv.device(),
                "rope: positions must be contiguous int32 (tokens) on qkv's device");
  } else {
    TORCH_CHECK(context >= 1 && std::min(context, qkv.size(0)) <= table.cos.size(0), "rope: context ",
                context, " does not fit a table of ", table.cos.size(0), " positions");
  }
}

void rotate_on_cpu(const at::Tensor& qkv, const RopeTable& table, int64_t heads, int64_t head_dim,
                   int64_t context, const at::Tensor& positions, bool inverse) {
  const c10::NoGradGuard no_grad;
  const int64_t tokens = qkv.size(0);
  if (tokens == 0 || heads == 0) return;
  const at::Tensor index = positions.defined() ? positions : at::arange(tokens, at::kInt).remainder(context);
  TORCH_CHECK(index.min().item<int32_t>() >= 0 && index.max().item<int32_t>() < table.cos.size(0),
              "rope: a position is outside the table of ", table.cos.size(0));
  const at::Tensor cos = table.cos.index_select(0, index).unsqueeze(1);  // (tokens, 1, head_dim / 2)
  const at::Tensor sin = table.sin.index_select(0, index).unsqueeze(1);
  const at::Tensor rotated = qkv.narrow(1, 0, heads * head_dim).unflatten(1, {heads, head_dim});
  const at::Tensor low = rotated.narrow(2, 0, head_dim / 2);
  const at::Tensor high = rotated.narrow(2, head_dim / 2, head_dim / 2);
  const double sign = inverse ? -1.0 : 1.0;
  const at::Tensor low32 = low.to(at::kFloat);
  const at::Tensor high32 = high.to(at::kFloat);
  const at::Tensor x = at::mul(low32, cos).addcmul_(high32, sin, -sign);
  const at::Tensor y = at::mul(high32, cos).addcmul_(low32, sin, sign);
  low.copy_(x);
  high.copy_(y);
}

}  // namespace

RopeTable make_rope_table(int64_t max_positions, int64_t head_dim, double theta, at::Device device) {
  const at::Tensor exponent = at::arange(0, head_dim, 2, at::kDouble).div_(static_cast<double>(-head_dim));
  const at::Tensor angle = at::outer(at::arange(max_positions, at::kDouble), at::pow(theta, exponent));
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  return {.cos = angle.cos().to(options), .sin = angle.sin().to(options)};
}

void rope_in_place(const at::Tensor& qkv, const RopeTable& table, int64_t heads, int64_t head_dim,
                   int64_t context, const at::Tensor& positions, bool inverse) {
  check(qkv, table, heads, head_dim, context, positions);
  if (!qkv.is_cuda()) return rotate_on_cpu(qkv, table, heads, head_dim, context, positions, inverse);
  for_dtype(qkv.scalar_type(), [&]<class T>() {
    cuda::rope<T>({.qkv = written<T>(qkv),
                   .cos = read<float>(table.cos),
                   .sin = read<float>(table.sin),
                   .positions = read<int32_t>(positions),
                   .tokens = qkv.size(0),
                   .row_stride = row_stride(qkv),
                   .heads = heads,
                   .head_dim = head_dim,
                   .context = context,
                   .inverse = inverse},
                  limits_of(qkv), current_stream(qkv));
  });
}

}  // namespace narrowgauge::ops
