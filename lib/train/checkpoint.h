#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cuda/step_state.h"
#include "lib/config/config.h"
#include "lib/io/safetensors.h"

namespace narrowgauge::train {

// What a resumed run is compared with.
struct RunIdentity {
  uint64_t data = 0;       // Dataset::fingerprint() of train
  uint64_t tokenizer = 0;  // 0: none
  std::string model;       // canonical text of every model key that shapes tensors, and of train.dtype
  std::string optimizer;   // the same for optim.state, embedding_state, min_8bit_size, master
  std::string order;  // the same for what decides which samples a position stands for (context, seed, ...)
};

// Everything of a run at a step boundary.
struct CheckpointState {
  int64_t step = 0;       // optimizer steps done (skipped ones included)
  int64_t tokens = 0;     // tokens seen
  int64_t sequences = 0;  // data position: the next global sample
  cuda::StepState step_state;
  Config config;  // resolved
  RunIdentity identity;
  std::string choices;  // the kernels in use (lib/ops/choice_file.h); empty: none were chosen
  std::vector<io::NamedTensor> weights;
  std::vector<io::NamedTensor> optimizer;
};

// A checkpoint is the folder RUN/checkpoints/step-00000500 with weights.safetensors, optimizer.safetensors,
// state.json, config.yaml, choices.json where kernels were chosen and, written last, manifest.json: the size
// and XXH3-64 of every other file. It is written under a temporary name, fsynced and renamed, so a folder
// without a valid manifest is never a checkpoint.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path run);

  // Checks free space first (UserError with the figures), writes, prunes: the newest keep_last (at least one)
  // and every multiple of keep_every stay; checkpoints of later steps, which this run has gone back behind,
  // and stale temporary folders go. An older checkpoint of the same step is replaced. Nothing is pruned when
  // writing fails.
  void save(const CheckpointState& state, int64_t keep_last, int64_t keep_every);

  // Steps with a manifest whose files exist at the listed sizes, ascending.
  [[nodiscard]] std::vector<int64_t> complete() const;
  [[nodiscard]] std::optional<int64_t> newest() const;
  [[nodiscard]] std::filesystem::path folder(int64_t step) const;
  [[nodiscard]] std::filesystem::path choices_file(int64_t step) const;

  // The resolved config and numbers of a checkpoint (tensors empty). Verifies all checksums: UserError names
  // the file.
  [[nodiscard]] CheckpointState read_state(int64_t step) const;
  // Copies the tensors of the checkpoint into the given ones, streaming. `optimizer` may be empty
  // (evaluation).
  void load_tensors(int64_t step, const std::vector<io::NamedTensor>& weights,
                    const std::vector<io::NamedTensor>& optimizer) const;
  // The optimizer's tensors of a checkpoint, opened for reading.
  [[nodiscard]] io::SafetensorsFile optimizer_tensors(int64_t step) const;

 private:
  // Removes what killed programs left. Only the program that trains (RunLock) may call it.
  void remove_stale() const;
  // After `saved` was written.
  void prune(int64_t saved, int64_t keep_last, int64_t keep_every) const;
  // What to do when the checkpoint of `step` cannot be used.
  [[nodiscard]] std::string remedy(int64_t step) const;

  std::filesystem::path run_;
};

}  // namespace narrowgauge::train
