// Builds without CUDA: the launchers of the optimizer step, which no CPU path reaches.
#include <stdexcept>

#include "cuda/adamw.h"
#include "cuda/gradient_norm.h"

namespace narrowgauge::cuda {
namespace {

[[noreturn]] void absent() { throw std::logic_error("this build has no CUDA kernels"); }

}  // namespace

void write_step_input(StepState*, const StepInput&, Stream) { absent(); }
void finish_gradient_norm(const FinishGradientNorm&, Stream) { absent(); }
template <class G>
void gradient_norm(const GradientNorm<G>&, const DeviceLimits&, Stream) {
  absent();
}
template <class T, class G>
void adamw(const AdamW<T, G>&, const DeviceLimits&, Stream) {
  absent();
}

template void gradient_norm(const GradientNorm<float>&, const DeviceLimits&, Stream);
template void gradient_norm(const GradientNorm<bf16>&, const DeviceLimits&, Stream);
template void adamw(const AdamW<float, float>&, const DeviceLimits&, Stream);
template void adamw(const AdamW<float, bf16>&, const DeviceLimits&, Stream);
template void adamw(const AdamW<bf16, float>&, const DeviceLimits&, Stream);
template void adamw(const AdamW<bf16, bf16>&, const DeviceLimits&, Stream);

}  // namespace narrowgauge::cuda
