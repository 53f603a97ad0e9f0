#include "lib/train/memory_report.h"

#include <fmt/format.h>

#include "cuda/gemm_workspace.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/plan/memory.h"

namespace narrowgauge::train {
namespace {

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }
int64_t bytes_of(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : tensors) sum += bytes_of(tensor);
  return sum;
}

}  // namespace

std::vector<MemoryRow> memory_by_category(const Session& session, const MemoryPeaks& peaks) {
  const Config& config = session.config;
  model::Transformer& model = *session.model;
  const model::ParameterArena& arena = model.arena();
  const layout::StaticBytes fixed = plan::static_bytes(config);
  const auto pass = model.layout_of(layout::Purpose::train, config.train.micro_batch, config.data.context);
  const auto at_peak = [&](layout::Category category) {
    return pass->peak().by_category[static_cast<size_t>(category)];
  };
  std::vector<MemoryRow> rows{
      {"weights", fixed.weights, bytes_of(arena.weights())},
      {"gradients", fixed.all_gradients(), bytes_of(arena.grad()) + bytes_of(arena.grad32())},
      {"optimizer", fixed.optimizer(), bytes_of(session.optimizer->state_tensors())},
      {"slab", pass->bytes(), model.slab_bytes()}};
  if (session.device.device.is_cuda()) {  // every pass has products
    rows.push_back({"GEMM workspace", cuda::kGemmWorkspaceBytes, cuda::kGemmWorkspaceBytes});
  }
  int64_t known = 0;
  for (const MemoryRow& row : rows) known += *row.measured;
  rows.push_back({"saved activations", at_peak(layout::Category::saved), {}});
  rows.push_back({"temporaries", at_peak(layout::Category::temporary), {}});
  rows.push_back({"loss", at_peak(layout::Category::loss), {}});
  rows.push_back({"workspaces", at_peak(layout::Category::workspace), {}});
  if (session.device.device.is_cuda()) {
    rows.push_back({"other tensors", {}, peaks.allocated - known});
    rows.push_back({"outside the allocator", {}, peaks.device - peaks.reserved});
  }
  return rows;
}

std::string memory_text(const std::vector<MemoryRow>& rows) {
  std::vector<std::string> parts;
  for (const MemoryRow& row : rows) {
    std::string text = row.category;
    if (row.predicted) text += " " + format_bytes(*row.predicted);
    if (row.measured) text += fmt::format(" ({})", format_bytes(*row.measured));
    parts.push_back(std::move(text));
  }
  return join(parts, ", ");
}

}  // namespace narrowgauge::train
