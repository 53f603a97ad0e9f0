#include "lib/model/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lib/model/uniform.h"

namespace narrowgauge::model {

int32_t draw_token(std::span<const float> logits, const SampleOptions& options, uint64_t step) {
  if (options.temperature <= 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  const auto before = [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  const auto candidates =
      std::min(ids.size(), options.top_k > 0 ? static_cast<size_t>(options.top_k) : ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(candidates), ids.end(), before);
  ids.resize(candidates);

  std::vector<double> sums;  // running, of exp((logit - largest) / temperature)
  double sum = 0;
  for (const int32_t id : ids) {
    sum +=
        std::exp((static_cast<double>(logit(id)) - static_cast<double>(logit(ids[0]))) / options.temperature);
    sums.push_back(sum);
  }
  if (options.top_p < 1) {
    const auto last = std::lower_bound(sums.begin(), sums.end(), options.top_p * sum);
    if (last != sums.end()) sums.erase(last + 1, sums.end());
  }
  const double target = uniform(cuda::philox(options.seed, step, 0).word[0]) * sums.back();
  const auto drawn = std::upper_bound(sums.begin(), sums.end() - 1, target);
  return ids[static_cast<size_t>(drawn - sums.begin())];
}

}  // namespace narrowgauge::model
