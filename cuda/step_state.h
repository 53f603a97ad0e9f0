#pragma once
#include <cstdint>

#include "cuda/stream.h"

namespace narrowgauge::cuda {

// Everything that changes from one optimizer step to the next, in device memory, so that a captured
// graph replays with new values. The host writes `StepInput` before the step (one small copy); the
// rest is kept by finish_gradient_norm on the device and read back a step late.
struct StepInput {
  float learning_rate = 0;
  float inverse_tokens = 0;  // 1 / counted target tokens of the global batch
  uint64_t seed = 0;         // of stochastic rounding
  uint64_t step = 0;         // data step, 0-based; also counts skipped steps
};

struct StepState {
  StepInput input;
  int64_t adam_step = 0;  // updates applied; a skipped step does not count
  int64_t skipped_total = 0;
  int64_t skipped_in_row = 0;
  float grad_norm = 0;         // L2 norm of the whole gradient before clipping; may be Inf or NaN
  float clip_factor = 1;       // what the gradient is multiplied by
  float bias_correction1 = 1;  // 1 - beta1^adam_step
  float bias_correction2 = 1;  // 1 - beta2^adam_step
  int32_t skip = 0;            // 1: this step's gradient is not finite and nothing is updated
};

// Writes `input` into the device struct, asynchronously on `stream` and without a host buffer that must
// outlive the call. Throws LaunchError (null pointer) before the launch and CudaError after it.
void write_step_input(StepState* state, const StepInput& input, Stream stream);

}  // namespace narrowgauge::cuda
