#include "lib/ops/linear_cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "lib/ops/cross_entropy.h"
#include "lib/ops/linear.h"
#include "lib/ops/sum.h"

namespace narrowgauge::ops {
namespace {

// Rows of whole 16 bytes, whatever the vocabulary: cuBLAS and the cross-entropy kernel are fast on them
// alone.
at::Tensor logits_buffer(int64_t rows, int64_t columns, const at::TensorOptions& options) {
  const int64_t lanes = 16 / static_cast<int64_t>(options.dtype().itemsize());
  return at::empty({rows, (columns + lanes - 1) / lanes * lanes}, options).narrow(1, 0, columns);
}

}  // namespace

LossSums linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                              const at::Tensor& scale, const at::Tensor& dhidden, const at::Tensor& dweight,
                              const LossOptions& options) {
  const c10::NoGradGuard no_grad;
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1),
              "linear_cross_entropy: hidden must be (tokens, H) and weight (V, H)");
  TORCH_CHECK(options.chunk >= 1, "linear_cross_entropy: chunk must be at least 1");
  TORCH_CHECK(dhidden.defined() == dweight.defined(),
              "linear_cross_entropy: dhidden and dweight are produced together");
  TORCH_CHECK(!dweight.defined() || dweight.scalar_type() == at::kFloat,
              "linear_cross_entropy: dweight must be fp32");
  const bool gradient = dhidden.defined();
  const int64_t tokens = hidden.size(0);
  const int64_t chunk = std::min(options.chunk, tokens);

  const at::Tensor losses = at::empty({tokens}, hidden.options().dtype(at::kFloat));
  const at::Tensor lse = at::empty_like(losses);
  const at::Tensor buffer = logits_buffer(chunk, weight.size(0), hidden.options());
  for (int64_t first = 0; first < tokens; first += chunk) {
    const int64_t n = std::min(chunk, tokens - first);
    const at::Tensor x = hidden.narrow(0, first, n);
    const at::Tensor logits = buffer.narrow(0, 0, n);
    linear_forward(logits, x, weight);
    cross_entropy_in_place(logits, losses.narrow(0, first, n), lse.narrow(0, first, n),
                           targets.narrow(0, first, n), scale,
                           {.vocab = options.vocab, .z_loss = options.z_loss, .gradient = gradient});
    if (!gradient) continue;
    linear_input_grad(dhidden.narrow(0, first, n), logits, weight);
    linear_weight_grad(dweight, logits, x);
  }
  const LossSums sums{.loss = at::zeros({}, losses.options()), .lse = at::zeros({}, losses.options())};
  sum_into(sums.loss, losses);
  sum_into(sums.lse, lse);
  return sums;
}

}  // namespace narrowgauge::ops
