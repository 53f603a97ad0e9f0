#pragma once
#include "cuda/adamw.h"

namespace narrowgauge::ops {

// bf16 weights and gradients as their bits.
using Bits16 = uint16_t;

// The CPU twin of cuda::adamw on the same arguments, T and G being float or Bits16 for bf16.
template <class T, class G>
struct AdamWOnCpu {
  T* weights;
  int16_t* remainder;
  float* master;
  const G* grad;
  const float* grad32;
  uint8_t* m_codes;
  uint8_t* v_codes;
  float* m_scales;
  float* v_scales;
  float* m32;
  float* v32;
  cuda::StepState state;
  cuda::AdamWRules rules;
  cuda::Master mode;
};

template <class T, class G>
void adamw_on_cpu(const AdamWOnCpu<T, G>& args, const cuda::AdamWRange& range);

}  // namespace narrowgauge::ops
