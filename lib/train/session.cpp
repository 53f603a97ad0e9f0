#include "lib/train/session.h"

#include <fmt/format.h>

#include <utility>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/train/checkpoint_identity.h"
#include "lib/train/evaluate.h"
#include "lib/train/graph.h"

namespace narrowgauge::train {
namespace {

RunIdentity identity_of(const Config& config, const Corpus& corpus) {
  return run_identity(config, corpus.train.dataset->fingerprint(),
                      corpus.tokenizer ? corpus.tokenizer->hash() : 0);
}

}  // namespace

Session::Session(const TrainRequest& request)
    : config(request.config),
      folder(request.run, request.resume),
      device(open_device(config.train.device)),
      cuda_graphs(use_cuda_graphs(config.train.cuda_graphs, device.device)),
      corpus(open_corpus(config)),
      deterministic_as_asked_(config.train.deterministic) {
  set_numerics(config.train.deterministic != "false");  // until it is decided
  memory = std::make_unique<DeviceMemory>(device, config.memory.budget, config.memory.reserve);
  planner = std::make_unique<Planner>(config, device, memory->budget(), request.rates);
  if (const auto step = folder.resume_step()) {
    restore(*step, request.allow_data_change);
  } else {
    config = planner->decide();
    choose({}, {});
    model = make_model(config, device.device);
    set_initial_weights(*model, config);
    optimizer = make_optimizer(config, *model);
    optimizer->reset_master();
  }
  remember_choices(kernels);
  atomic_write_file(folder.path() / "config.yaml", dump_config(config_to_save()));
  if (corpus.tokenizer) corpus.tokenizer->save(folder.path());
}

// For everything that a run does: a sample needs less than a training pass.
void Session::reserve_slab() {
  const int64_t context = config.data.context;
  model->reserve(layout::Purpose::train, config.train.micro_batch, context);
  if (corpus.val.dataset) model->reserve(layout::Purpose::evaluate, evaluation_windows(context), context);
}

void Session::restore(int64_t step, bool allow_data_change) {
  const CheckpointState saved = folder.checkpoints().read_state(step);
  require_same_run(saved.identity, identity_of(config, corpus), allow_data_change);
  if (saved.sequences % sequences() != 0) {
    throw UserError(
        fmt::format("the run is at sample {}, which is no multiple of the {} samples of a step; choose "
                    "another train.tokens_per_step (it was {})",
                    saved.sequences, sequences(), saved.config.train.tokens_per_step));
  }
  config = planner->decide_as(saved.config);
  // On any card, and whether or not the checkpoint's choices serve it.
  const bool as_before = config.train.deterministic == "auto" && saved.config.train.deterministic == "true";
  if (as_before) config.train.deterministic = "true";
  choose(saved.choices, folder.checkpoints().choices_file(step));
  if (as_before) determinism.why = "auto: as the checkpoint was";
  model = make_model(config, device.device);
  optimizer = make_optimizer(config, *model);
  folder.checkpoints().load_tensors(step, named_weights(model->arena()), optimizer->state_tensors());
  optimizer->write_state(saved.step_state);
  position = {.step = saved.step, .tokens = saved.tokens, .sequences = saved.sequences};
  log_info(fmt::format("resuming {} at step {}", folder.path().string(), step));
}

void Session::choose(const std::string& saved, const std::filesystem::path& path) {
  Decisions decisions = decide(*planner, config, device, *memory, saved, path);
  config = std::move(decisions.config);
  kernels = std::move(decisions.kernels);
  determinism = std::move(decisions.determinism);
}

std::optional<plan::Plan> Session::plan() const {
  if (!planner->active()) return std::nullopt;
  return planner->of(config);
}

void Session::adopt(const plan::Plan& plan) {
  config.train.micro_batch = plan.config.train.micro_batch;
  config.memory.recompute = plan.config.memory.recompute;
  config.memory.loss_chunk = plan.config.memory.loss_chunk;
  model->replan(config.memory.recompute, config.memory.loss_chunk);
  release_cached_memory();
  reserve_slab();
  remember_choices(kernels);
}

Config Session::config_to_save() const {
  Config saved = config;
  saved.train.deterministic = deterministic_as_asked_;
  return saved;
}

std::unique_ptr<data::Loader> Session::make_loader() const {
  const data::Sampler sampler(corpus.train.range, config.data.context,
                              static_cast<uint64_t>(config.train.seed), config.data.shuffle);
  return std::make_unique<data::Loader>(corpus.train.dataset, sampler,
                                        data::LoaderOptions{.sequences = sequences(),
                                                            .context = config.data.context,
                                                            .document_mask = config.data.document_mask,
                                                            .end_of_document = corpus.end_of_document,
                                                            .prefetch = config.data.prefetch,
                                                            .first_step = position.sequences / sequences()},
                                        host_allocator(device.device));
}

void Session::save_into(CheckpointStore& store) {
  store.save({.step = position.step,
              .tokens = position.tokens,
              .sequences = position.sequences,
              .step_state = optimizer->read_state(),
              .config = config_to_save(),
              .identity = identity_of(config, corpus),
              .choices = choices_in_force(kernels),
              .weights = named_weights(model->arena()),
              .optimizer = optimizer->state_tensors()},
             config.train.keep_last, config.train.keep_every);
}

}  // namespace narrowgauge::train
