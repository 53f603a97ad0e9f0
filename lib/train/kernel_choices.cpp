#include "lib/train/kernel_choices.h"

#include <fmt/format.h>

#include <vector>

#include "lib/base/log.h"
#include "lib/base/text.h"
#include "lib/model/time_products.h"
#include "lib/ops/choices.h"

namespace narrowgauge::train {
namespace {

namespace fs = std::filesystem;

// Puts the checkpoint's choices into force where they were made for such a card and such libraries.
// `training`: a line says where they were not.
void load_saved(const ops::ChoicePlace& here, const std::string& saved, const fs::path& path, bool training) {
  if (saved.empty()) return;
  for (const ops::PlacedChoices& placed : ops::parse_choices(saved, path)) {
    if (here.serves(placed.place)) {
      ops::choices().load_json(placed.choices);
    } else if (training) {
      log_warn(fmt::format(
          "the checkpoint's kernels were chosen for {} with cuBLASLt {} and cuDNN {}, this is {} "
          "with {} and {}: they are chosen anew, and bits may differ from an uninterrupted run",
          placed.place.gpu, placed.place.cublaslt, placed.place.cudnn, here.gpu, here.cublaslt, here.cudnn));
    }
  }
}

model::ProductSizes product_sizes(const Config& config) {
  return {.rows = config.train.micro_batch * config.data.context,
          .loss_chunk = config.memory.loss_chunk,
          .dtype = at::kBFloat16,
          .grad_dtype = config.memory.grad_dtype == "fp32" ? at::kFloat : at::kBFloat16};
}

// "12 timed now, 3 from cache PATH".
std::string sources(const ops::ProductTimings& timings, const fs::path& cache) {
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const std::string& what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(timings.timed, "timed now");
  add(timings.recalled, "from cache " + cache.string());
  add(timings.in_force, "from the checkpoint");
  add(timings.left, "first heuristics for want of memory");
  return join(parts);
}

}  // namespace

KernelChoices choose_kernels(const Config& config, const ComputeDevice& device, int64_t byte_limit,
                             const std::string& saved, const fs::path& path) {
  ops::choices().clear();
  if (!device.device.is_cuda()) return {};
  KernelChoices kernels;
  kernels.place = ops::choice_place(device.device);
  load_saved(*kernels.place, saved, path, /*training=*/true);
  if (config.train.dtype != "bf16" || !config.train.tune_kernels) {
    const char* const why = config.train.tune_kernels ? "fp32" : "train.tune_kernels is false";
    kernels.gemm = ops::choices().to_json().empty() ? fmt::format("first heuristics ({})", why)
                                                    : "algorithms of the checkpoint, else first heuristics";
    return kernels;
  }
  kernels.cache = ops::choice_cache_path();
  ops::choices().remember_json(ops::load_choice_cache(kernels.cache, *kernels.place));
  const ops::ProductTimings timings =
      model::time_products(config.model, product_sizes(config), device.device, byte_limit);
  if (timings.refused > 0) {
    log_warn(
        fmt::format("{} of {} chosen GEMM algorithms are not taken by cuBLASLt {} here: they are chosen "
                    "anew, and bits may differ from before",
                    timings.refused, timings.products(), kernels.place->cublaslt));
  }
  remember_choices(kernels);
  kernels.products_ms = 1e-3 * timings.chosen_us;
  const double gain = timings.chosen_us > 0 ? 100 * (timings.first_us / timings.chosen_us - 1) : 0;
  kernels.gemm = fmt::format("{} shapes, algorithms {}; best over first heuristic {:.1f} %",
                             timings.products(), sources(timings, kernels.cache), gain);
  return kernels;
}

void remember_choices(const KernelChoices& kernels) {
  if (kernels.cache.empty()) return;
  const nlohmann::json news = ops::choices().news();
  if (news.empty()) return;
  ops::save_choice_cache(kernels.cache, *kernels.place, news);
  ops::choices().remember_json(news);
}

void recall_choices(const ComputeDevice& device, const std::string& saved, const fs::path& path) {
  ops::choices().clear();
  if (!device.device.is_cuda()) return;
  const ops::ChoicePlace place = ops::choice_place(device.device);
  load_saved(place, saved, path, /*training=*/false);
  ops::choices().remember_json(ops::load_choice_cache(ops::choice_cache_path(), place));
}

std::string choices_in_force(const KernelChoices& kernels) {
  const nlohmann::json choices = ops::choices().to_json();
  if (!kernels.place || choices.empty()) return "";
  return ops::format_choices({{.place = *kernels.place, .choices = choices}});
}

}  // namespace narrowgauge::train
