#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lib/config/config.h"

namespace narrowgauge::test {

// A model of two layers for tests: 8 sequences of `context` tokens a step.
Config small_config(const std::string& dtype, int64_t context);

// The whole gradient of one global batch of 8 random sequences, in fp64 on the CPU, computed in micro-batches
// of that many sequences. Always the same weights and tokens.
at::Tensor gradient(const Config& config, at::Device device, int64_t micro_batch);

// |a - b| / |b|
double relative_difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace narrowgauge::test
