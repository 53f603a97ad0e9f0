#pragma once
#include "cuda/adamw.h"

namespace narrowgauge::ops {

// bf16 weights and gradients as their bits.
using Bits16 = uint16_t;

// The CPU twin of cuda::adamw on the same arguments, all in host memory, T and G being float or Bits16 for
// bf16. The ranges must be valid.
template <class T, class G>
void adamw_on_cpu(const cuda::AdamW<T, G>& args);

}  // namespace narrowgauge::ops
