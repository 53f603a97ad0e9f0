#pragma once
// The global L2 norm of the gradient, its finite check and what follows from them, without a host
// synchronisation: partial sums of every buffer, then one small kernel that writes the device struct.
#include <cstdint>

#include "cuda/device_limits.h"
#include "cuda/step_math.h"
#include "cuda/step_state.h"
#include "cuda/stream.h"

namespace narrowgauge::cuda {

// Partial sums a buffer, and the threads that form one: fixed, so that the order of the additions depends
// neither on the card nor on the launch.
inline constexpr int kGradNormPartials = 1024;
inline constexpr int kGradNormThreads = 256;
inline constexpr int kGradNormUnroll = 4;

// partials[p] = a part of the sum of grad[i]^2. Sums are fp32 in a thread and fp64 across threads; a thread
// whose fp32 sum is not finite repeats its part in fp64, so that only a non-finite element gives a non-finite
// sum.
template <class G>
struct GradientNorm {
  double* partials;  // (kGradNormPartials), every element is written
  const G* grad;     // (count), 16-byte aligned; may be null when count == 0
  int64_t count;     // >= 0
};

struct GradientNormLaunch {
  int threads;
  int blocks;
};

// Pure function of the card's limits; the result does not depend on it.
GradientNormLaunch plan_gradient_norm(const DeviceLimits& limits);

// Asynchronous on `stream`. G: float, bf16. Throws LaunchError (null or unaligned pointer, negative count)
// before the launch and CudaError after it.
template <class G>
void gradient_norm(const GradientNorm<G>& args, const DeviceLimits& limits, Stream stream);

// Adds the partial sums in a fixed order and updates grad_norm, skip, clip_factor, adam_step, the bias
// corrections and the skip counters.
struct FinishGradientNorm {
  StepState* state;
  const double* partials;  // (partial_count)
  int partial_count;
  StepRules rules;
};
void finish_gradient_norm(const FinishGradientNorm& args, Stream stream);

}  // namespace narrowgauge::cuda
