#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/model/transformer.h"

namespace narrowgauge::test {

// Two layers, grouped queries, a head_dim that is not hidden / heads, untied head; large enough weights that
// attention is far from uniform.
ModelConfig tiny_config();

struct Where {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;
};

// Random weights (norms too), fp32 gradients allocated unless told otherwise.
std::unique_ptr<model::Transformer> make_model(const ModelConfig& config, const Where& where,
                                               std::vector<RecomputeLevel> levels,
                                               at::ScalarType grad_dtype = at::kFloat,
                                               bool document_mask = false);

// Random ids; every seventh target is not counted.
model::Batch random_batch(const ModelConfig& config, int64_t batch, int64_t context, at::Device device,
                          uint64_t seed = 5);
// Ends `batch` (one sequence or more) into documents that start at `starts` in every sequence.
void add_documents(model::Batch& batch, const std::vector<int32_t>& starts);
int64_t counted(const model::Batch& batch);
at::Tensor scale_for(const model::Batch& batch);  // 1 / counted

struct Result {
  at::Tensor loss;                              // mean over counted tokens, fp64 on the CPU
  std::map<std::string, at::Tensor> gradients;  // fp32 on the CPU, of the mean
};

// One forward and backward from zero gradients.
Result train_pass(model::Transformer& model, const model::Batch& batch);
std::map<std::string, at::Tensor> gradients_of(model::Transformer& model);

// L2 of the difference over L2 of the reference, in fp64; all tensors together for maps.
double relative_error(const at::Tensor& value, const at::Tensor& reference);
double relative_error(const std::map<std::string, at::Tensor>& values,
                      const std::map<std::string, at::Tensor>& references);
double cosine(const at::Tensor& a, const at::Tensor& b);
bool same_bits(const Result& a, const Result& b);

}  // namespace narrowgauge::test
