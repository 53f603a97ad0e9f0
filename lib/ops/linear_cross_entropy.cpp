#include "lib/ops/linear_cross_entropy.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "lib/base/interruption.h"
#include "lib/ops/cross_entropy.h"
#include "lib/ops/linear.h"
#include "lib/ops/sum.h"

namespace narrowgauge::ops {
LossSums linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                              const at::Tensor& scale, const LossBuffers& buffers, const at::Tensor& dweight,
                              const LossOptions& options) {
  const c10::NoGradGuard no_grad;
  const auto& [losses, lse, sums, all_logits, dhidden] = buffers;
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1),
              "linear_cross_entropy: hidden must be (tokens, H) and weight (V, H)");
  TORCH_CHECK(all_logits.dim() == 2 && all_logits.size(1) == weight.size(0),
              "linear_cross_entropy: logits must be (chunk, V)");
  TORCH_CHECK(dhidden.defined() == dweight.defined(),
              "linear_cross_entropy: dhidden and dweight are produced together");
  TORCH_CHECK(!dweight.defined() || dweight.scalar_type() == at::kFloat,
              "linear_cross_entropy: dweight must be fp32");
  const bool gradient = dhidden.defined();
  const int64_t tokens = hidden.size(0);
  const int64_t chunk = all_logits.size(0);
  TORCH_CHECK(chunk >= 1 || tokens == 0, "linear_cross_entropy: a chunk must have at least 1 token");

  for (int64_t first = 0; first < tokens; first += chunk) {
    interruption_point();
    const int64_t n = std::min(chunk, tokens - first);
    const at::Tensor x = hidden.narrow(0, first, n);
    const at::Tensor logits = all_logits.narrow(0, 0, n);
    linear_forward(logits, x, weight);
    cross_entropy_in_place(logits, losses.narrow(0, first, n), lse.narrow(0, first, n),
                           targets.narrow(0, first, n), scale,
                           {.vocab = options.vocab, .z_loss = options.z_loss, .gradient = gradient});
    if (!gradient) continue;
    interruption_point();
    linear_weight_grad(dweight, logits, x);
    linear_input_grad(dhidden.narrow(0, first, n), logits, weight);  // may overwrite x
  }
  at::Tensor all = sums;
  all.zero_();
  const LossSums result{
      .loss = sums.select(0, 0), .lse = sums.select(0, 1), .lse_squared = sums.select(0, 2)};
  sum_into({{.out = result.loss, .x = losses},
            {.out = result.lse, .x = lse},
            {.out = result.lse_squared, .x = lse, .squares = true}});
  return result;
}

}  // namespace narrowgauge::ops
