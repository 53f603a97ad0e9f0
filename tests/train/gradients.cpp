#include "tests/train/gradients.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include "lib/data/loader.h"
#include "lib/train/batch.h"
#include "lib/train/setup.h"

namespace narrowgauge::test {
namespace {

constexpr int64_t kSequences = 8;

// Any ids do, as long as they are always the same.
std::vector<int32_t> some_tokens(int64_t count, int64_t vocab, int32_t salt) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  uint32_t state = 12345U + static_cast<uint32_t>(salt);
  for (int32_t& token : tokens) {
    state = state * 1664525U + 1013904223U;
    token = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab));
  }
  return tokens;
}

}  // namespace

Config small_config(const std::string& dtype, int64_t context) {
  Config config;
  config.model.vocab_size = 211;
  config.model.layers = 2;
  config.model.hidden_size = 64;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.ffn_size = 96;
  config.model.init_std = 0.1;  // large enough for gradients that mean something
  config.data.context = context;
  config.train.dtype = dtype;
  config.train.micro_batch = 1;
  config.train.tokens_per_step = kSequences * context;
  config.train.deterministic = "true";
  config.memory.recompute = {RecomputeLevel::none};
  config.memory.grad_dtype = dtype;
  config.memory.loss_chunk = 4096;
  return config;
}

at::Tensor gradient(const Config& config, at::Device device, int64_t micro_batch) {
  const auto model = train::make_model(config, device);
  train::set_initial_weights(*model, config);
  model::ParameterArena& arena = model->arena();
  arena.allocate_gradients(config.memory.grad_dtype == "bf16" ? at::kBFloat16 : at::kFloat);
  const int64_t count = kSequences * config.data.context;
  auto tokens = some_tokens(count, config.model.vocab_size, 0);
  auto targets = some_tokens(count, config.model.vocab_size, 1);
  data::GlobalBatch batch;
  batch.sequences = kSequences;
  batch.context = config.data.context;
  batch.tokens = tokens.data();
  batch.targets = targets.data();
  train::DeviceBatch on_device(device, kSequences, config.data.context, false);
  on_device.upload(batch, kSequences, micro_batch);
  const at::Tensor scale =
      at::full({}, 1.0 / static_cast<double>(count), at::TensorOptions(device).dtype(at::kFloat));
  for (int64_t i = 0; i < on_device.pieces(); ++i) model->loss(on_device.piece(i), scale).loss.backward();
  return at::cat({arena.grad().to(at::kCPU, at::kDouble), arena.grad32().to(at::kCPU, at::kDouble)});
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

}  // namespace narrowgauge::test
