#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "tests/model/support.h"

namespace narrowgauge::test {

// The same decoder written as plain ATen expressions and differentiated by autograd, in any dtype: fp64 is
// the truth, bf16 is what one gets without care (norms, softmax and loss in fp32, everything else in bf16).
class ReferenceModel {
 public:
  // Copies the weights.
  ReferenceModel(const model::Transformer& model, at::Device device, at::ScalarType dtype);

  at::Tensor logits(const model::Batch& batch) const;  // (tokens, V), with a graph
  Result train_pass(const model::Batch& batch, double z_loss = 0) const;

 private:
  [[nodiscard]] at::Tensor layer(const at::Tensor& x, int64_t index, const model::Batch& batch) const;
  [[nodiscard]] at::Tensor norm(const at::Tensor& x, const std::string& name) const;
  [[nodiscard]] at::Tensor rotate(const at::Tensor& x, const at::Tensor& positions) const;

  ModelConfig config_;
  at::ScalarType wide_;  // dtype of norms, softmax and loss
  std::map<std::string, at::Tensor> weights_;
};

}  // namespace narrowgauge::test
