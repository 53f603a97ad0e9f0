#pragma once
#include <array>
#include <cstdint>

#include "lib/bench/timer.h"
#include "lib/ops/linear.h"

namespace narrowgauge::bench {

// The products of a linear layer, in the order of ops::linear_keys.
enum class Direction : uint8_t { forward, input_grad, weight_grad };
inline constexpr std::array kDirections{Direction::forward, Direction::input_grad, Direction::weight_grad};
const char* direction_name(Direction direction);

// One of them through lib/ops/linear.h on random data, with its operands and its result as one buffer set.
Prepared prepare_product(at::Device device, const ops::LinearShape& shape, Direction direction);

}  // namespace narrowgauge::bench
