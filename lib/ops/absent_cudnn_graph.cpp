// A build without CUDA has no cuDNN.
#include "lib/ops/cudnn_graph.h"

namespace narrowgauge::ops::cudnn {

struct Plan::Impl {
  std::string name;
};
struct Pass::Impl {
  std::vector<std::string> names;
};

Pass Pass::forward(const Problem&) { throw Refusal("this build has no CUDA"); }
Pass Pass::backward(const Problem&, bool) { throw Refusal("this build has no CUDA"); }
const std::vector<std::string>& Pass::plan_names() const { return impl_->names; }
Plan Pass::build(const std::string&) const { throw Refusal("this build has no CUDA"); }
Plan Pass::build_first() const { throw Refusal("this build has no CUDA"); }
const std::string& Plan::name() const { return impl_->name; }
int64_t Plan::workspace_bytes() const { return 0; }
void Plan::run(std::span<void* const>, void*, cuda::Stream) const {}

}  // namespace narrowgauge::ops::cudnn
