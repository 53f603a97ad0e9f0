#include "lib/ops/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>

#include "cuda/cross_entropy.h"
#include "lib/ops/device.h"

namespace narrowgauge::ops {
namespace {

void check(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& lse,
           const at::Tensor& targets, const at::Tensor& scale, const CrossEntropyOptions& o) {
  TORCH_CHECK(logits.dim() == 2 && logits.stride(1) == 1 && logits.stride(0) >= logits.size(1),
              "cross_entropy: logits must be (rows, columns) with contiguous rows that do not overlap");
  TORCH_CHECK(o.vocab >= 1 && o.vocab <= logits.size(1), "cross_entropy: vocab ", o.vocab, " of ",
              logits.size(1), " columns");
  const auto vector_of = [&](const at::Tensor& t, at::ScalarType dtype) {
    return t.dim() == 1 && t.size(0) == logits.size(0) && t.is_contiguous() && t.scalar_type() == dtype &&
           t.device() == logits.device();
  };
  TORCH_CHECK(vector_of(losses, at::kFloat) && vector_of(lse, at::kFloat),
              "cross_entropy: losses and lse must be fp32 (rows) on the logits' device");
  TORCH_CHECK(vector_of(targets, at::kInt),
              "cross_entropy: targets must be int32 (rows) on the logits' device");
  if (o.gradient) {
    TORCH_CHECK(scale.defined() && scale.numel() == 1 && scale.scalar_type() == at::kFloat &&
                    scale.device() == logits.device(),
                "cross_entropy: scale must be one fp32 value on the logits' device");
  }
}

template <class T>
void launch(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& lse,
            const at::Tensor& targets, const at::Tensor& scale, const CrossEntropyOptions& o) {
  cuda::cross_entropy<T>({.logits = static_cast<T*>(logits.data_ptr()),
                          .losses = losses.data_ptr<float>(),
                          .lse = lse.data_ptr<float>(),
                          .targets = targets.const_data_ptr<int32_t>(),
                          .scale = o.gradient ? scale.const_data_ptr<float>() : nullptr,
                          .rows = logits.size(0),
                          .columns = logits.size(1),
                          .row_stride = logits.stride(0),
                          .vocab = o.vocab,
                          .ignore_index = kIgnoreIndex,
                          .z_loss = static_cast<float>(o.z_loss),
                          .gradient = o.gradient},
                         limits_of(logits), current_stream(logits));
}

// The CPU twin: ATen in fp32, a few rows at a time so that the temporaries stay small. As in the kernel, the
// target's own term is kept out of the sum, so that nothing cancels when its probability is near 1.
void rows_on_cpu(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& lse_out,
                 const at::Tensor& targets, const at::Tensor& scale, const CrossEntropyOptions& o) {
  const at::Tensor x = logits.narrow(1, 0, o.vocab);
  const at::Tensor counted = targets.ne(kIgnoreIndex);
  const at::Tensor valid = counted.logical_and(targets.ge(0)).logical_and(targets.lt(o.vocab));
  const at::Tensor column = targets.clamp(0, o.vocab - 1).to(at::kLong).unsqueeze(1);

  const at::Tensor peak = x.amax(1, /*keepdim=*/true).to(at::kFloat);
  const at::Tensor x_target = x.gather(1, column).to(at::kFloat);
  at::Tensor e = at::sub(x, peak).exp_();  // bf16 with fp32: fp32
  const at::Tensor own = e.gather(1, column);
  e.scatter_(1, column, 0);
  const at::Tensor others = e.sum(1, /*keepdim=*/true);
  const at::Tensor sum = others + own;
  const at::Tensor log_sum = at::where(own.eq(1), at::log1p(others), at::log(sum));
  const at::Tensor lse = peak + log_sum;
  const at::Tensor loss = (peak - x_target) + log_sum + lse.square() * o.z_loss;

  const at::Tensor without =
      at::full_like(losses, std::numeric_limits<float>::quiet_NaN()).masked_fill_(~counted, 0);
  losses.copy_(at::where(valid, loss.squeeze(1), without));
  lse_out.copy_(at::where(valid, lse.squeeze(1), without));
  if (!o.gradient) return;
  const at::Tensor z = lse * (2 * o.z_loss);
  e.mul_((z + 1) * scale / sum);
  e.scatter_(1, column, (own * z - others) * scale / sum);
  e.masked_fill_(valid.logical_not().unsqueeze(1), 0);
  x.copy_(e);
  logits.narrow(1, o.vocab, logits.size(1) - o.vocab).zero_();
}

}  // namespace

void cross_entropy_in_place(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& lse,
                            const at::Tensor& targets, const at::Tensor& scale,
                            const CrossEntropyOptions& options) {
  check(logits, losses, lse, targets, scale, options);
  const bool bf16 = logits.scalar_type() == at::kBFloat16;
  TORCH_CHECK(bf16 || logits.scalar_type() == at::kFloat, "cross_entropy: logits must be bf16 or fp32");
  if (logits.is_cuda()) {
    const auto run = bf16 ? launch<cuda::bf16> : launch<float>;
    return run(logits, losses, lse, targets, scale, options);
  }
  const c10::NoGradGuard no_grad;
  constexpr int64_t kElementsAtOnce = int64_t{1} << 20;
  const int64_t rows = logits.size(0);
  const int64_t step = std::max<int64_t>(1, kElementsAtOnce / logits.size(1));
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t n = std::min(step, rows - first);
    rows_on_cpu(logits.narrow(0, first, n), losses.narrow(0, first, n), lse.narrow(0, first, n),
                targets.narrow(0, first, n), options.gradient ? scale.reshape({}) : scale, options);
  }
}

}  // namespace narrowgauge::ops
