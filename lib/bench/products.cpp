#include "lib/bench/products.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <stdexcept>

#include "lib/bench/kernel_cases.h"

namespace narrowgauge::bench {
namespace {

constexpr double kWeightDeviation = 0.02;

using Multiply = void (*)(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right);

Prepared operand_set(Multiply multiply, const at::Tensor& result, const at::Tensor& left,
                     const at::Tensor& right) {
  return {.launch = [=] { multiply(result, left, right); },
          .footprint = static_cast<int64_t>(result.nbytes() + left.nbytes() + right.nbytes())};
}

}  // namespace

const char* direction_name(Direction direction) {
  constexpr std::array<const char*, kDirections.size()> kNames{"forward", "input_grad", "weight_grad"};
  return kNames.at(static_cast<size_t>(direction));
}

Prepared prepare_product(at::Device device, const ops::LinearShape& s, Direction direction) {
  const at::TensorOptions options = at::TensorOptions(s.dtype).device(device);
  const auto x = [&] { return random_normal(device, {s.rows, s.in}, s.dtype); };
  const auto w = [&] { return random_normal(device, {s.out, s.in}, s.dtype, kWeightDeviation); };
  const auto dy = [&] { return random_normal(device, {s.rows, s.y_stride}, s.dtype).narrow(1, 0, s.out); };
  switch (direction) {
    case Direction::forward:
      return operand_set(ops::linear_forward, at::empty({s.rows, s.y_stride}, options).narrow(1, 0, s.out),
                         x(), w());
    case Direction::input_grad:
      return operand_set(ops::linear_input_grad, at::empty({s.rows, s.in}, options), dy(), w());
    case Direction::weight_grad:
      return operand_set(ops::linear_weight_grad, at::zeros({s.out, s.in}, options.dtype(s.grad_dtype)), dy(),
                         x());
  }
  throw std::logic_error("unknown direction");
}

}  // namespace narrowgauge::bench
