#pragma once
#include <memory>
#include <vector>

#include "lib/config/config.h"
#include "lib/data/loader.h"
#include "lib/io/safetensors.h"
#include "lib/model/transformer.h"
#include "lib/optim/optimizer.h"

namespace narrowgauge::train {

model::TransformerOptions model_options(const Config& config, at::Device device);

// The model with storage for its weights, which are not set yet. UserError when train.attention cannot be
// met.
std::unique_ptr<model::Transformer> make_model(const Config& config, at::Device device);

// Random weights (model.init, train.seed) or those of model.init_from, whose config.json must agree with
// every model key (UserError lists what differs).
void set_initial_weights(model::Transformer& model, const Config& config);

// Allocates the gradients, then the optimizer's state.
std::unique_ptr<optim::Optimizer> make_optimizer(const Config& config, model::Transformer& model);

// Every weight by name, as views of the arena.
std::vector<io::NamedTensor> named_weights(const model::ParameterArena& arena);

// Page-locked host memory when the device is a GPU, for data::Loader.
data::HostAllocator host_allocator(at::Device device);

}  // namespace narrowgauge::train
