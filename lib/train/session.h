#pragma once
#include <memory>
#include <optional>

#include "lib/data/loader.h"
#include "lib/train/corpus.h"
#include "lib/train/decisions.h"
#include "lib/train/device.h"
#include "lib/train/run_folder.h"
#include "lib/train/setup.h"
#include "lib/train/trainer.h"

namespace narrowgauge::train {

// How far a run has come, at a step boundary.
struct Position {
  int64_t step = 0;       // optimizer steps done
  int64_t tokens = 0;     // seen
  int64_t sequences = 0;  // the next global sample
};

// Everything that a training program holds, made ready from a request: folder, device, data, model,
// optimizer; new or as the checkpoint left them. Members are built in the order in which they can fail
// cheaply.
struct Session {
  explicit Session(const TrainRequest& request);

  [[nodiscard]] int64_t sequences() const { return config.train.tokens_per_step / config.data.context; }
  [[nodiscard]] std::unique_ptr<data::Loader> make_loader() const;
  // The plan of the config as it is now; nothing where the planner is not active.
  [[nodiscard]] std::optional<plan::Plan> plan() const;
  // Goes on with another micro-batch and other levels; a Step made before is worthless then.
  void adopt(const plan::Plan& plan);
  // Makes room for all that the run does.
  void reserve_slab();
  // Writes a checkpoint of the current position. The device must have finished the last step (it is waited
  // for).
  void save() { save_into(folder.checkpoints()); }
  void save_into(CheckpointStore& store);

  Config config;  // resolved
  RunFolder folder;
  ComputeDevice device;
  bool cuda_graphs;
  Corpus corpus;
  Position position;
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<Planner> planner;
  KernelChoices kernels;
  Determinism determinism;
  std::unique_ptr<model::Transformer> model;
  std::unique_ptr<optim::Optimizer> optimizer;

 private:
  void restore(int64_t step, bool allow_data_change);
  // The config of this run for its folder: train.deterministic as it was asked for. What was decided is among
  // the kernel choices.
  [[nodiscard]] Config config_to_save() const;
  // Kernels and determinism for the config. `saved` and `path` as in train::choose_kernels.
  void choose(const std::string& saved, const std::filesystem::path& path);

  std::string deterministic_as_asked_;
};

}  // namespace narrowgauge::train
