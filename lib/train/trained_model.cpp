#include "lib/train/trained_model.h"

#include "lib/train/checkpoint.h"
#include "lib/train/determinism.h"
#include "lib/train/kernel_choices.h"
#include "lib/train/run_folder.h"
#include "lib/train/setup.h"

namespace narrowgauge::train {

TrainedModel load_trained_model(const std::filesystem::path& run, const std::string& step,
                                const std::string& device) {
  const CheckpointStore store(run);
  TrainedModel trained;
  trained.step = find_checkpoint(store, run, step);
  const CheckpointState state = store.read_state(trained.step);
  trained.config = state.config;
  if (!device.empty()) {
    trained.config.train.device = device;
    trained.config.train.attention = "auto";  // the kernel that was asked for may not exist there
  }
  const ComputeDevice where = open_device(trained.config.train.device);
  recall_choices(where, state.choices, store.choices_file(trained.step));
  const bool deterministic = known_determinism(trained.config, where);
  set_numerics(deterministic);
  const MemoryConfig& limits = trained.config.memory;
  trained.memory = std::make_unique<DeviceMemory>(where, limits.budget, limits.reserve);
  model::TransformerOptions options = model_options(trained.config, where.device);
  options.deterministic = deterministic;  // the choices of such attention are in force
  options.time_attention = false;
  trained.model = std::make_unique<model::Transformer>(trained.config.model, options);
  store.load_tensors(trained.step, named_weights(trained.model->arena()), {});
  trained.tokenizer = data::load_tokenizer(run);
  trained.tokens_are_bytes =
      trained.tokenizer && trained.tokenizer->hash() == data::make_tokenizer("byte")->hash();
  return trained;
}

}  // namespace narrowgauge::train
