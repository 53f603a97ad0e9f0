#include "lib/model/init.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <xxhash.h>

#include <cmath>
#include <numbers>

#include "lib/model/uniform.h"

namespace narrowgauge::model {
namespace {

// out[i] ~ N(0, std), a function of (key, i). Four numbers a Philox block: two Box-Muller pairs.
void fill_normal(float* out, int64_t count, uint64_t key, double std) {
  constexpr int64_t kBlocksPerTask = 1 << 14;
  const int64_t blocks = (count + 3) / 4;
  at::parallel_for(0, blocks, kBlocksPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const cuda::Random128 bits = cuda::philox(key, static_cast<uint64_t>(block), 0);
      for (int64_t pair = 0; pair < 2; ++pair) {
        const auto at = static_cast<size_t>(2 * pair);
        const double radius = std * std::sqrt(-2.0 * std::log(uniform(bits.word[at])));
        const double angle = 2.0 * std::numbers::pi * uniform(bits.word[at + 1]);
        const int64_t i = 4 * block + 2 * pair;
        if (i < count) out[i] = static_cast<float>(radius * std::cos(angle));
        if (i + 1 < count) out[i + 1] = static_cast<float>(radius * std::sin(angle));
      }
    }
  });
}

}  // namespace

void initialise(ParameterArena& arena, const ModelConfig& config, uint64_t seed) {
  const double residual_scale =
      config.init == "scaled" ? 1.0 / std::sqrt(2.0 * static_cast<double>(config.layers)) : 1.0;
  for (const ParameterSlot& slot : arena.slots()) {
    at::Tensor weight = arena.weight(slot);
    if (slot.spec.kind == ParameterKind::norm) {
      weight.fill_(1.0);
      continue;
    }
    const double std = config.init_std * (slot.spec.residual_projection ? residual_scale : 1.0);
    const std::string& name = slot.spec.name;
    const at::Tensor values = at::empty(slot.spec.shape, at::TensorOptions().dtype(at::kFloat));
    fill_normal(values.mutable_data_ptr<float>(), slot.count,
                XXH3_64bits_withSeed(name.data(), name.size(), seed), std);
    weight.copy_(values);
  }
}

}  // namespace narrowgauge::model
