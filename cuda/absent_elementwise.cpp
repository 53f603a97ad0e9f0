// A build without CUDA: the launchers exist and throw.
#include "cuda/device_limits.h"
#include "cuda/error.h"
#include "cuda/rms_norm.h"
#include "cuda/rope.h"
#include "cuda/scale.h"
#include "cuda/swiglu.h"

namespace narrowgauge::cuda {
namespace {
[[noreturn]] void absent() { throw CudaError("this build has no CUDA kernels"); }
}  // namespace

DeviceLimits device_limits(int) { absent(); }

#define NARROWGAUGE_ABSENT(launcher, Arguments)                                 \
  template <class T>                                                            \
  void launcher(const Arguments<T>&, const DeviceLimits&, Stream) {             \
    absent();                                                                   \
  }                                                                             \
  template void launcher(const Arguments<float>&, const DeviceLimits&, Stream); \
  template void launcher(const Arguments<bf16>&, const DeviceLimits&, Stream)

NARROWGAUGE_ABSENT(scale, Scale);
NARROWGAUGE_ABSENT(swiglu, Swiglu);
NARROWGAUGE_ABSENT(swiglu_backward, SwigluBackward);
NARROWGAUGE_ABSENT(rope, Rope);
NARROWGAUGE_ABSENT(rms_norm, RmsNorm);
NARROWGAUGE_ABSENT(rms_norm_backward, RmsNormBackward);

}  // namespace narrowgauge::cuda
