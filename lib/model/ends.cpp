#include "lib/model/ends.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "lib/model/buffers.h"
#include "lib/ops/embedding.h"

namespace narrowgauge::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Views of the arena travel in saved_data, since others write into the arena before backward; what
// save_for_backward holds is released as soon as backward has run.
constexpr const char* kWeight = "weight";
constexpr const char* kGradient = "gradient";

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& gradient,
                            const at::Tensor& tokens, const std::optional<at::Tensor>& order) {
    context->saved_data[kGradient] = gradient;
    context->save_for_backward({tokens, order.value_or(at::Tensor())});
    at::Tensor out = take({tokens.numel(), weight.size(1)}, weight);
    ops::embedding_forward(out, weight, tokens);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& doutputs) {
    const variable_list saved = context->get_saved_variables();
    ops::embedding_backward(context->saved_data[kGradient].toTensor(), doutputs[0], saved[0], saved[1]);
    return variable_list(4);
  }
};

struct FinalNormFunction : Function<FinalNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& gradient,
                            const at::Tensor& residual, const at::Tensor& delta, double eps) {
    const ResidualNorm norm = enter(residual, delta, weight, eps);
    context->saved_data[kWeight] = weight.detach();
    context->saved_data[kGradient] = gradient;
    context->save_for_backward({norm.input, norm.rstd});
    return norm.normed;
  }

  static variable_list backward(AutogradContext* context, const variable_list& doutputs) {
    const variable_list saved = context->get_saved_variables();
    const ResidualNorm norm{.input = saved[0], .normed = {}, .rstd = saved[1]};
    const at::Tensor dinput = take(doutputs[0].sizes(), doutputs[0]);
    enter_backward(dinput, norm, context->saved_data[kWeight].toTensor(),
                   context->saved_data[kGradient].toTensor(), doutputs[0], {});
    return {{}, {}, dinput, dinput, {}};
  }
};

struct HeadLossFunction : Function<HeadLossFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& gradient,
                               const at::Tensor& hidden, const at::Tensor& targets, const at::Tensor& scale,
                               const ops::LossOptions& options) {
    const at::Tensor dhidden = take(hidden.sizes(), hidden);
    const ops::LossSums sums =
        ops::linear_cross_entropy(hidden, weight, targets, scale, dhidden, gradient, options);
    context->save_for_backward({dhidden});
    context->mark_non_differentiable({sums.lse});
    return {sums.loss, sums.lse};
  }

  static variable_list backward(AutogradContext* context, const variable_list&) {
    variable_list result(6);
    result[2] = context->get_saved_variables()[0];
    return result;
  }
};

}  // namespace

at::Tensor embed(const Leaf& embedding, const at::Tensor& tokens, const at::Tensor& order) {
  if (at::GradMode::is_enabled()) {
    return EmbeddingFunction::apply(embedding.parameter, embedding.gradient, tokens,
                                    order.defined() ? std::optional(order) : std::nullopt);
  }
  at::Tensor out = take({tokens.numel(), embedding.parameter.size(1)}, embedding.parameter);
  ops::embedding_forward(out, embedding.parameter, tokens);
  return out;
}

at::Tensor final_norm(const Leaf& norm, const Stream& stream, double eps) {
  if (at::GradMode::is_enabled()) {
    return FinalNormFunction::apply(norm.parameter, norm.gradient, stream.residual, stream.delta, eps);
  }
  return enter(stream.residual, stream.delta, norm.parameter, eps).normed;
}

ops::LossSums head_loss(const Leaf& head, const at::Tensor& hidden, const at::Tensor& targets,
                        const at::Tensor& scale, const ops::LossOptions& options) {
  if (at::GradMode::is_enabled()) {
    const variable_list out =
        HeadLossFunction::apply(head.parameter, head.gradient, hidden, targets, scale, options);
    return {.loss = out[0], .lse = out[1]};
  }
  return ops::linear_cross_entropy(hidden, head.parameter, targets, scale, {}, {}, options);
}

}  // namespace narrowgauge::model
