#pragma once
// Every kernel of cuda/ at the shapes of a model, ready to be measured. Least traffic in bytes follows from
// the operation alone: every input read once, every output written once, tables and weights of a row from the
// cache.
#include <string>
#include <vector>

#include "lib/bench/timer.h"
#include "lib/config/config.h"

namespace narrowgauge::bench {

at::Tensor random_normal(at::Device device, at::IntArrayRef sizes, at::ScalarType dtype,
                         double deviation = 1);
at::Tensor random_tokens(at::Device device, int64_t count, int64_t vocab);  // int32, uniform

std::vector<Measured> norm_cases(at::Device device, const ModelConfig& model, int64_t rows);
std::vector<Measured> elementwise_cases(at::Device device, const ModelConfig& model, int64_t rows,
                                        int64_t context);
std::vector<Measured> embedding_cases(at::Device device, const ModelConfig& model, int64_t rows);
// Cross-entropy of (rows, vocab) logits, with the gradient and the loss alone.
std::vector<Measured> loss_cases(at::Device device, const ModelConfig& model, int64_t rows);
// Norm of all gradients, AdamW in the given master modes ("stochastic", ...) over all parameters.
std::vector<Measured> optimizer_cases(at::Device device, const Config& config,
                                      const std::vector<std::string>& masters);

}  // namespace narrowgauge::bench
