// A build without CUDA has no cuDNN.
#include "lib/ops/cudnn_graph.h"

namespace narrowgauge::ops::cudnn {

struct Plan::Impl {};

Plan Plan::forward(const Problem&) { throw Refusal("this build has no CUDA"); }
Plan Plan::backward(const Problem&, bool) { throw Refusal("this build has no CUDA"); }
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;
int64_t Plan::workspace_bytes() const { return 0; }
void Plan::run(std::span<void* const>, void*, cuda::Stream) const {}

}  // namespace narrowgauge::ops::cudnn
