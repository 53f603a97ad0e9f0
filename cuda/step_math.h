#pragma once
// How the device struct changes once the gradient's sum of squares is known: shared by the kernel and its CPU
// twin.
#include <cmath>

#include "cuda/host_device.h"
#include "cuda/step_state.h"

namespace narrowgauge::cuda {

// What stays the same for the whole run.
struct StepRules {
  double max_norm;  // largest gradient norm; <= 0: no clipping
  double beta1;
  double beta2;
};

// A sum that is not finite means a gradient element that is not: the sum itself cannot overflow in fp64.
NARROWGAUGE_HD void finish_step(StepState& state, double sum_of_squares, const StepRules& rules) {
  const double norm = sqrt(sum_of_squares);
  const bool skip = !(sum_of_squares <= 1.7976931348623157e308);  // also true for NaN
  state.grad_norm = static_cast<float>(norm);
  state.skip = skip ? 1 : 0;
  if (skip) {
    state.clip_factor = 1;
    ++state.skipped_total;
    ++state.skipped_in_row;
    return;
  }
  const double clip = rules.max_norm > 0 ? rules.max_norm / (norm + 1e-6) : 1.0;
  state.clip_factor = clip < 1.0 ? static_cast<float>(clip) : 1.0f;
  state.skipped_in_row = 0;
  const double steps = static_cast<double>(++state.adam_step);
  state.bias_correction1 = static_cast<float>(-expm1(steps * log(rules.beta1)));
  state.bias_correction2 = static_cast<float>(-expm1(steps * log(rules.beta2)));
}

}  // namespace narrowgauge::cuda
