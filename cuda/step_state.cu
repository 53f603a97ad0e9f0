#include "cuda/step_state.h"

#include "cuda/launch.cuh"

namespace narrowgauge::cuda {
namespace {

__global__ void write_step_input_kernel(StepState* state, const StepInput input) { state->input = input; }

}  // namespace

void write_step_input(StepState* state, const StepInput& input, Stream stream) {
  require(state != nullptr, "write_step_input: null pointer");
  write_step_input_kernel<<<1, 1, 0, stream>>>(state, input);
  check_launch("write_step_input");
}

}  // namespace narrowgauge::cuda
