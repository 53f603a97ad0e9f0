#pragma once
#include <memory>
#include <vector>

#include "lib/config/config.h"
#include "lib/data/loader.h"
#include "lib/io/safetensors.h"
#include "lib/layout/static_bytes.h"
#include "lib/model/transformer.h"
#include "lib/optim/optimizer.h"

namespace narrowgauge::train {

// What a run of this config holds from start to end.
layout::StaticBytes static_bytes(const Config& config);

// Bytes that the run holds and one training pass needs, with that scratch of attention's, once nothing of
// memory.recompute and train.micro_batch is auto; what lies outside the slab and the arenas comes on top.
int64_t planned_bytes(const Config& config, const ops::AttentionScratch& scratch);

// "auto" replaced by its choice: micro-batch 1; for all layers the recompute level that keeps most while the
// run fits into `bytes` of device memory by the sizes of lib/layout, with room for library modules; block
// where none fits or `bytes` is 0 (no GPU).
Config resolve_auto(Config config, int64_t bytes);

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
