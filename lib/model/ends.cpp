#include "lib/model/ends.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "lib/ops/embedding.h"
#include "lib/ops/rms_norm.h"

namespace narrowgauge::model {
namespace {

using layout::Name;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using PassPointer = std::shared_ptr<const Pass>;

// Views of the arena travel in saved_data, since others write into the arena before backward; what
// save_for_backward holds is released as soon as backward has run.
constexpr const char* kWeight = "weight";
constexpr const char* kGradient = "gradient";
constexpr const char* kPass = "pass";

struct PassHolder : torch::CustomClassHolder {
  explicit PassHolder(PassPointer held) : pass(std::move(held)) {}
  PassPointer pass;
};

void save_pass(AutogradContext* context, const PassPointer& pass) {
  context->saved_data[kPass] = at::IValue::make_capsule(c10::make_intrusive<PassHolder>(pass));
}

// The pass of this node's forward, whose tensors must still be there.
PassPointer saved_pass(AutogradContext* context) {
  const auto capsule = context->saved_data[kPass].toCapsule();
  PassPointer pass = static_cast<PassHolder&>(*capsule).pass;
  pass->slab->require(pass->number);
  return pass;
}

Place at_ends(const PassPointer& pass, layout::Phase phase) { return {*pass, layout::kNoLayer, phase}; }

at::Tensor embedded(const at::Tensor& weight, const at::Tensor& tokens, const PassPointer& pass) {
  at::Tensor out = Place{*pass, 0, layout::Phase::forward}.take(Name::attention_input);
  ops::embedding_forward(out, weight, tokens);
  return out;
}

ResidualNorm entered(const at::Tensor& weight, const Stream& stream, const PassPointer& pass) {
  return enter(stream.residual, stream.delta, weight, at_ends(pass, layout::Phase::forward),
               layout::kFinalEntry);
}

ops::LossSums losses(const at::Tensor& weight, const at::Tensor& dweight, const at::Tensor& hidden,
                     const at::Tensor& targets, const at::Tensor& scale, const ops::LossOptions& options,
                     const PassPointer& pass) {
  const Place place = at_ends(pass, layout::Phase::forward);
  const ops::LossBuffers buffers{.losses = place.take(Name::losses),
                                 .lse = place.take(Name::loss_lse),
                                 .sums = place.take(Name::loss_sums),
                                 .logits = place.take(Name::logits),
                                 .dhidden = dweight.defined() ? hidden : at::Tensor()};
  return ops::linear_cross_entropy(hidden, weight, targets, scale, buffers, dweight, options);
}

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& gradient,
                            const at::Tensor& tokens, const std::optional<at::Tensor>& order,
                            const PassPointer& pass) {
    context->saved_data[kGradient] = gradient;
    context->save_for_backward({tokens, order.value_or(at::Tensor())});
    save_pass(context, pass);
    return embedded(weight, tokens, pass);
  }

  static variable_list backward(AutogradContext* context, const variable_list& doutputs) {
    saved_pass(context);
    const variable_list saved = context->get_saved_variables();
    ops::embedding_backward(context->saved_data[kGradient].toTensor(), doutputs[0], saved[0], saved[1]);
    return variable_list(5);
  }
};

struct FinalNormFunction : Function<FinalNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& gradient,
                            const at::Tensor& residual, const at::Tensor& delta, const PassPointer& pass) {
    const ResidualNorm norm = entered(weight, {residual, delta}, pass);
    context->saved_data[kWeight] = weight.detach();
    context->saved_data[kGradient] = gradient;
    context->save_for_backward({norm.input, norm.rstd});
    save_pass(context, pass);
    return norm.normed;
  }

  static variable_list backward(AutogradContext* context, const variable_list& doutputs) {
    const PassPointer pass = saved_pass(context);
    const Place place = at_ends(pass, layout::Phase::backward);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dinput = place.take(Name::dfinal);
    ops::rms_norm_backward(dinput, context->saved_data[kGradient].toTensor(), doutputs[0], saved[0],
                           context->saved_data[kWeight].toTensor(), saved[1], {}, {}, place.norm_scratch());
    return {{}, {}, dinput, dinput, {}};
  }
};

struct HeadLossFunction : Function<HeadLossFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& gradient,
                               const at::Tensor& hidden, const at::Tensor& targets, const at::Tensor& scale,
                               const ops::LossOptions& options, const PassPointer& pass) {
    const at::Tensor own = hidden.detach();
    const ops::LossSums sums = losses(weight, gradient, own, targets, scale, options, pass);
    context->save_for_backward({own});
    save_pass(context, pass);
    context->mark_non_differentiable({sums.lse, sums.lse_squared});
    return {sums.loss, sums.lse, sums.lse_squared};
  }

  static variable_list backward(AutogradContext* context, const variable_list&) {
    saved_pass(context);
    variable_list result(7);
    result[2] = context->get_saved_variables()[0];
    return result;
  }
};

}  // namespace

at::Tensor embed(const Leaf& embedding, const at::Tensor& tokens, const at::Tensor& order,
                 const PassPointer& pass) {
  if (at::GradMode::is_enabled()) {
    return EmbeddingFunction::apply(embedding.parameter, embedding.gradient, tokens,
                                    order.defined() ? std::optional(order) : std::nullopt, pass);
  }
  return embedded(embedding.parameter, tokens, pass);
}

at::Tensor final_norm(const Leaf& norm, const Stream& stream, const PassPointer& pass) {
  if (at::GradMode::is_enabled()) {
    return FinalNormFunction::apply(norm.parameter, norm.gradient, stream.residual, stream.delta, pass);
  }
  return entered(norm.parameter, stream, pass).normed;
}

ops::LossSums head_loss(const Leaf& head, const at::Tensor& hidden, const at::Tensor& targets,
                        const at::Tensor& scale, const ops::LossOptions& options, const PassPointer& pass) {
  if (at::GradMode::is_enabled()) {
    const variable_list out =
        HeadLossFunction::apply(head.parameter, head.gradient, hidden, targets, scale, options, pass);
    return {.loss = out[0], .lse = out[1], .lse_squared = out[2]};
  }
  return losses(head.parameter, {}, hidden, targets, scale, options, pass);
}

}  // namespace narrowgauge::model
