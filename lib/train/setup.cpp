#include "lib/train/setup.h"

#include <fmt/format.h>

#include "lib/base/error.h"
#include "lib/base/text.h"
#include "lib/io/hugging_face.h"
#include "lib/layout/ranges.h"
#include "lib/model/init.h"
#include "lib/train/device.h"

namespace narrowgauge::train {
namespace {

at::ScalarType scalar_type(const std::string& name) { return name == "bf16" ? at::kBFloat16 : at::kFloat; }

void require_same_model(const ModelConfig& config, const ModelConfig& found) {
  std::vector<std::string> differences;
  const auto compare = [&](const char* key, const auto& ours, const auto& theirs) {
    if (ours != theirs)
      differences.push_back(fmt::format("model.{} is {}, the folder has {}", key, ours, theirs));
  };
  compare("vocab_size", config.vocab_size, found.vocab_size);
  compare("layers", config.layers, found.layers);
  compare("hidden_size", config.hidden_size, found.hidden_size);
  compare("heads", config.heads, found.heads);
  compare("kv_heads", config.kv_head_count(), found.kv_head_count());
  compare("head_dim", config.head_size(), found.head_size());
  compare("ffn_size", config.ffn_size, found.ffn_size);
  compare("rope_theta", config.rope_theta, found.rope_theta);
  compare("norm_eps", config.norm_eps, found.norm_eps);
  compare("qk_norm", config.qk_norm, found.qk_norm);
  compare("tie_embeddings", config.tie_embeddings, found.tie_embeddings);
  if (!differences.empty()) {
    throw UserError(fmt::format("model.init_from ({}) holds another model: {}; make the keys agree",
                                config.init_from, join(differences, "; ")));
  }
}

}  // namespace

model::TransformerOptions model_options(const Config& config, at::Device device) {
  return {.dtype = scalar_type(config.train.dtype),
          .device = device,
          .max_context = config.data.context,
          .micro_batch = config.train.micro_batch,
          .recompute = config.memory.recompute,
          .attention = config.train.attention,
          .attention_workspace = config.memory.attention_workspace,
          .deterministic = config.train.is_deterministic(),
          .document_mask = config.data.document_mask,
          .time_attention = true,
          .loss_chunk = config.memory.loss_chunk,
          .loss = {.vocab = config.model.vocab_size, .z_loss = config.train.z_loss}};
}

std::unique_ptr<model::Transformer> make_model(const Config& config, at::Device device) {
  return std::make_unique<model::Transformer>(config.model, model_options(config, device));
}

void set_initial_weights(model::Transformer& model, const Config& config) {
  if (config.model.init_from.empty()) {
    model::initialise(model.arena(), config.model, static_cast<uint64_t>(config.train.seed));
    return;
  }
  require_same_model(config.model, io::read_hugging_face_config(config.model.init_from));
  io::import_hugging_face(config.model.init_from, config.model, named_weights(model.arena()));
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Config& config, model::Transformer& model) {
  model::ParameterArena& arena = model.arena();
  arena.allocate_gradients(config.train.dtype == "fp32" ? at::kFloat : scalar_type(config.memory.grad_dtype));
  return std::make_unique<optim::Optimizer>(
      optim::FlatBuffers{.weights = arena.weights(),
                         .grad = arena.grad(),
                         .grad32 = arena.grad32(),
                         .ranges = layout::update_ranges(arena.slots(), config.optim)},
      config.optim);
}

std::vector<io::NamedTensor> named_weights(const model::ParameterArena& arena) {
  std::vector<io::NamedTensor> tensors;
  for (const model::ParameterSlot& slot : arena.slots())
    tensors.emplace_back(slot.spec.name, arena.weight(slot));
  return tensors;
}

data::HostAllocator host_allocator(at::Device device) {
  if (!device.is_cuda()) return data::plain_host_buffer;
  return [device](size_t bytes) {
    auto tensor = std::make_shared<at::Tensor>(host_tensor({static_cast<int64_t>(bytes)}, at::kByte, device));
    return data::HostBuffer{.data = tensor->mutable_data_ptr(), .release = [tensor] { tensor->reset(); }};
  };
}

}  // namespace narrowgauge::train
