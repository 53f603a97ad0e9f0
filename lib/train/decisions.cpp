#include "lib/train/decisions.h"

#include <algorithm>

namespace narrowgauge::train {
namespace {

constexpr int64_t kTimingBytes = int64_t{1} << 30;  // of device memory, while kernels are timed

}  // namespace

Decisions decide(const Planner& planner, const Config& decided, const ComputeDevice& device,
                 const DeviceMemory& memory, const std::string& saved, const std::filesystem::path& path) {
  const int64_t byte_limit = std::min(kTimingBytes, memory.cap() / 2);
  Decisions all{.config = decided, .kernels = {}, .determinism = {}};
  const auto choose = [&] {
    all.kernels = choose_kernels(all.config, device, byte_limit, saved, path);
    all.determinism = resolve_determinism(all.config, device, all.kernels.products_ms, memory.budget());
    all.config.train.deterministic = all.determinism.on ? "true" : "false";
  };
  choose();
  if (decided.train.deterministic != "auto" || all.determinism.on || !saved.empty()) return all;
  Config freer = planner.decide(/*deterministic=*/false);
  freer.train.deterministic = "false";
  if (plan::choice_of(freer) == plan::choice_of(all.config)) return all;
  all.config = freer;
  const std::string why = all.determinism.why;
  choose();
  all.determinism.why = why;
  return all;
}

}  // namespace narrowgauge::train
