#include "lib/bench/breakdown.h"

#include <algorithm>
#include <map>

namespace narrowgauge::bench {
namespace {

struct Sign {
  std::string_view part;  // of the lower-case name
  Category category;
};

// The first that occurs decides. Our own kernels come first; their names hold those of their argument
// structs.
constexpr Sign kSigns[] = {
    {"rmsnorm", Category::elementwise},
    {"rms_norm", Category::elementwise},
    {"add_partials", Category::elementwise},
    {"rope_kernel", Category::elementwise},
    {"rope<", Category::elementwise},
    {"swiglu", Category::elementwise},
    {"crossentropy", Category::loss},
    {"cross_entropy", Category::loss},
    {"embedding", Category::embedding},
    {"radixsort", Category::embedding},  // of token ids, before the embedding's gradient
    {"radix_sort", Category::embedding},
    {"adamw", Category::optimizer},
    {"gradientnorm", Category::optimizer},
    {"gradient_norm", Category::optimizer},
    {"step_input", Category::optimizer},
    {"flash", Category::attention},
    {"fmha", Category::attention},
    {"sdpa", Category::attention},
    {"attention", Category::attention},
    {"cudnn", Category::attention},  // LibTorch and we use cuDNN for nothing else
    {"gemm", Category::gemm},
    {"nvjet", Category::gemm},
    {"cutlass", Category::gemm},
    {"cublas", Category::gemm},
    {"splitk", Category::gemm},
    {"xmma", Category::gemm},
};

}  // namespace

const char* category_name(Category category) {
  constexpr const char* kNames[kCategories] = {"GEMM",      "attention", "norm, RoPE, SwiGLU",  "loss",
                                               "embedding", "optimizer", "other, copies, fills"};
  return kNames[static_cast<size_t>(category)];
}

Category classify(std::string_view kernel) {
  std::string lower(kernel);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  for (const Sign& sign : kSigns) {
    if (lower.find(sign.part) != std::string::npos) return sign.category;
  }
  return Category::other;
}

Breakdown break_down(std::vector<KernelEvent> events) {
  Breakdown result;
  if (events.empty()) return result;
  std::sort(events.begin(), events.end(),
            [](const KernelEvent& a, const KernelEvent& b) { return a.begin < b.begin; });
  std::map<std::string, KernelTotal> totals;
  int64_t busy = 0;
  int64_t last = events.front().begin;
  for (const KernelEvent& event : events) {
    const double milliseconds = static_cast<double>(event.end - event.begin) * 1e-6;
    const Category category = classify(event.name);
    result.milliseconds[static_cast<size_t>(category)] += milliseconds;
    KernelTotal& total = totals[event.name];
    total.name = event.name;
    total.category = category;
    total.count += 1;
    total.milliseconds += milliseconds;
    busy += std::max<int64_t>(0, event.end - std::max(event.begin, last));
    last = std::max(last, event.end);
  }
  result.span = static_cast<double>(last - events.front().begin) * 1e-6;
  result.busy = static_cast<double>(busy) * 1e-6;
  for (auto& [name, total] : totals) result.kernels.push_back(std::move(total));
  std::stable_sort(
      result.kernels.begin(), result.kernels.end(),
      [](const KernelTotal& a, const KernelTotal& b) { return a.milliseconds > b.milliseconds; });
  return result;
}

}  // namespace narrowgauge::bench
