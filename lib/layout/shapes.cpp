#include <algorithm>
#include <stdexcept>

#include "cuda/rms_norm.h"
#include "lib/layout/step.h"

namespace narrowgauge::layout {
namespace {

// Floats that the backward of any norm of the model needs.
int64_t norm_scratch(const ModelConfig& model, const StepShape& step) {
  if (!step.limits) return 0;
  const auto floats = [&](int64_t rows, int64_t columns) {
    return cuda::rms_norm_backward_scratch(rows, columns, static_cast<int>(element_bytes(step.element)),
                                           *step.limits);
  };
  const int64_t whole = floats(step.tokens(), model.hidden_size);
  return model.qk_norm ? std::max(whole, floats(step.tokens() * model.heads, model.head_size())) : whole;
}

}  // namespace

Shape shape_of(Name name, const ModelConfig& model, const StepShape& step) {
  const int64_t tokens = step.tokens();
  const int64_t final_tokens = step.purpose == Purpose::generate ? 1 : tokens;
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return Shape{.rows = rows, .columns = columns, .stride = columns, .element = step.element};
  };
  const auto vector = [](int64_t count, Element element) {
    return Shape{.rows = count, .columns = 0, .stride = 1, .element = element};
  };
  const auto fp32_matrix = [&](int64_t columns) {
    return Shape{.rows = tokens, .columns = columns, .stride = columns, .element = Element::fp32};
  };
  switch (name) {
    case Name::attention_input:
    case Name::attention_normed:
    case Name::attention_delta:
    case Name::ffn_input:
    case Name::ffn_normed:
    case Name::ffn_delta:
    case Name::dmiddle:
    case Name::dinput:
    case Name::dfinal:
      return matrix(tokens, model.hidden_size);
    case Name::final_input:
    case Name::final_normed:
      return matrix(final_tokens, model.hidden_size);
    case Name::qkv_raw:
    case Name::qkv:
    case Name::dqkv:
      return matrix(tokens, model.qkv_width());
    case Name::qk_raw:
      return matrix(tokens, model.query_width() + model.kv_width());
    case Name::attended:
    case Name::dattended:
      return matrix(tokens, model.query_width());
    case Name::gate_up:
      return matrix(tokens, 2 * model.ffn_size);
    case Name::product:
    case Name::dproduct:
      return matrix(tokens, model.ffn_size);
    case Name::query_rstd:
      return fp32_matrix(model.heads);
    case Name::key_rstd:
      return fp32_matrix(model.kv_head_count());
    case Name::attention_rstd:
    case Name::ffn_rstd:
    case Name::losses:
    case Name::loss_lse:
      return vector(tokens, Element::fp32);
    case Name::loss_sums:
      return vector(3, Element::fp32);
    case Name::final_rstd:
      return vector(final_tokens, Element::fp32);
    case Name::lse:
      return vector(tokens * model.heads, Element::fp32);
    case Name::logits:
      return {.rows = std::min(step.loss_chunk, tokens),
              .columns = model.vocab_size,
              .stride = padded_row(model.vocab_size, element_bytes(step.element)),
              .element = step.element};
    case Name::attention_scratch:
      return vector(step.attention_scratch, Element::byte);
    case Name::attention_backward_scratch:
      return vector(step.attention_backward_scratch, Element::byte);
    case Name::norm_scratch:
      return vector(norm_scratch(model, step), Element::fp32);
  }
  throw std::logic_error("unknown buffer");
}

}  // namespace narrowgauge::layout
