#include "lib/layout/buffer.h"

#include <array>
#include <cstddef>

namespace narrowgauge::layout {

const char* buffer_name(Name name) {
  constexpr std::array<const char*, kNames> kText{
      "attention_input",
      "attention_normed",
      "attention_rstd",
      "qkv_raw",
      "qk_raw",
      "query_rstd",
      "key_rstd",
      "qkv",
      "attended",
      "lse",
      "attention_scratch",
      "attention_delta",
      "ffn_input",
      "ffn_normed",
      "ffn_rstd",
      "gate_up",
      "product",
      "ffn_delta",
      "dproduct",
      "dmiddle",
      "dattended",
      "dqkv",
      "attention_backward_scratch",
      "dinput",
      "final_input",
      "final_normed",
      "final_rstd",
      "losses",
      "loss_lse",
      "loss_sums",
      "logits",
      "dfinal",
      "norm_scratch",
  };
  return kText.at(static_cast<size_t>(name));
}

}  // namespace narrowgauge::layout
