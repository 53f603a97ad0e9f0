#include "lib/optim/master.h"

#include <ATen/ops/empty.h>

#include "cuda/adamw_math.h"

namespace narrowgauge::optim {

at::Tensor join_masters(const at::Tensor& weights, const at::Tensor& remainders) {
  at::Tensor masters = at::empty(weights.sizes(), at::TensorOptions(at::kFloat));
  const auto* weight = static_cast<const uint16_t*>(weights.const_data_ptr());
  const auto* remainder = remainders.const_data_ptr<int16_t>();
  auto* master = masters.mutable_data_ptr<float>();
  for (int64_t i = 0; i < weights.numel(); ++i) master[i] = cuda::join_master(weight[i], remainder[i]);
  return masters;
}

}  // namespace narrowgauge::optim
