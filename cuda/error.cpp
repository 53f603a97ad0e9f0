#include "cuda/error.h"

namespace narrowgauge::cuda {

void require(bool ok, const char* message) {
  if (!ok) throw LaunchError(message);
}

}  // namespace narrowgauge::cuda
