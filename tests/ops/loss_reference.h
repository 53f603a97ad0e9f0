#pragma once
// fp64 references of the loss and attention operations, written as plain ATen expressions and differentiated
// by autograd, and the criterion that an implementation is held to.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/close.h"
#include "tests/support/reference.h"

namespace narrowgauge::test {

using reference::leaf;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Random numbers of any dtype from one seed, the same ones on every device.
class Draws {
 public:
  explicit Draws(uint64_t seed, at::Device device)
      : generator_(at::detail::createCPUGenerator(seed)), device_(device) {}
  at::Tensor normal(at::IntArrayRef size, at::ScalarType dtype, double scale = 1.0) {
    return (at::randn(size, generator_, at::TensorOptions(at::kFloat)) * scale).to(device_, dtype);
  }
  // int32 in [low, high).
  at::Tensor integers(int64_t low, int64_t high, at::IntArrayRef size) {
    return at::randint(low, high, size, generator_, at::TensorOptions(at::kInt)).to(device_);
  }

 private:
  at::Generator generator_;
  at::Device device_;
};

// ||a - b|| / ||b|| in fp64, over all elements; absolute when b is zero.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (b.numel() == 0) return 0.0;
  const double base = b.to(at::kDouble).norm().item<double>();
  const double difference = (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>();
  return base > 0 ? difference / base : difference;
}

// An implementation may be at most twice as far from fp64 as plain ATen in the same dtype is.
inline void check_as_good(const at::Tensor& ours, const at::Tensor& plain, const at::Tensor& exact,
                          const char* what) {
  INFO(what << ": plain " << relative_error(plain, exact));
  CHECK(relative_error(ours, exact) <= 2.0 * relative_error(plain, exact) + 1e-6);
}

struct RowLosses {
  at::Tensor losses;
  at::Tensor lse;
};

// Differentiable; targets int32, -100 ignored.
inline RowLosses plain_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, int64_t vocab,
                                     double z_loss) {
  const at::Tensor counted = targets.ne(-100);
  const at::Tensor x = logits.narrow(1, 0, vocab);
  const at::Tensor lse = at::logsumexp(x, 1);
  const at::Tensor own = x.gather(1, targets.clamp(0, vocab - 1).to(at::kLong).unsqueeze(1)).squeeze(1);
  const at::Tensor zero = at::zeros_like(lse);
  return {.losses = at::where(counted, lse - own + lse.square() * z_loss, zero),
          .lse = at::where(counted, lse, zero)};
}

// Causal attention of packed rows in the dtype of qkv, differentiable: (tokens, heads * head_dim).
// `document_of` (tokens): tokens attend within their document only; undefined: within their sequence.
inline at::Tensor plain_attention(const at::Tensor& qkv, int64_t batch, int64_t heads, int64_t kv_heads,
                                  const at::Tensor& document_of) {
  const int64_t tokens = qkv.size(0);
  const int64_t context = tokens / batch;
  const int64_t head_dim = qkv.size(1) / (heads + 2 * kv_heads);
  const at::Tensor all = qkv.view({batch, context, heads + 2 * kv_heads, head_dim}).transpose(1, 2);
  const at::Tensor q = all.narrow(1, 0, heads);
  const at::Tensor k = all.narrow(1, heads, kv_heads).repeat_interleave(heads / kv_heads, 1);
  const at::Tensor v = all.narrow(1, heads + kv_heads, kv_heads).repeat_interleave(heads / kv_heads, 1);
  const at::Tensor position = at::arange(context, qkv.options().dtype(at::kLong));
  at::Tensor masked = (position.unsqueeze(0) > position.unsqueeze(1)).expand({batch, 1, context, context});
  if (document_of.defined()) {
    const at::Tensor d = document_of.view({batch, 1, context});
    masked = masked.logical_or(d.unsqueeze(2) != d.unsqueeze(3));
  }
  const at::Tensor scores =
      at::matmul(q, k.transpose(2, 3)) * (1.0 / std::sqrt(static_cast<double>(head_dim)));
  const at::Tensor p = at::softmax(scores.masked_fill(masked, -std::numeric_limits<float>::infinity()), -1);
  return at::matmul(p, v).transpose(1, 2).reshape({tokens, heads * head_dim});
}

}  // namespace narrowgauge::test
