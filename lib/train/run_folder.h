#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lib/base/run_lock.h"
#include "lib/train/checkpoint.h"

namespace narrowgauge::train {

// RUN: config.yaml, metrics.jsonl, log.txt, tokenizer.*, lock, checkpoints/. Held under its lock while
// training.
class RunFolder {
 public:
  // Creates the folder when missing, locks it, starts log.txt and decides where to begin. `resume` is "" (a
  // folder that holds a run is refused), "auto" (the newest complete checkpoint; without one afresh, which is
  // logged) or a step. UserError: unwritable, in use, holds a run, no such checkpoint.
  RunFolder(std::filesystem::path path, const std::string& resume);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  [[nodiscard]] CheckpointStore& checkpoints() { return checkpoints_; }
  [[nodiscard]] std::optional<int64_t> resume_step() const { return resume_step_; }

  // True once after somebody made the file RUN/save; removes it.
  bool take_save_request() const;

 private:
  [[nodiscard]] std::optional<int64_t> find_resume_step(const std::string& resume) const;

  std::filesystem::path path_;
  RunLock lock_;
  CheckpointStore checkpoints_;
  std::optional<int64_t> resume_step_;
};

// The checkpoint that `step` ("": the newest complete one) names in a run, for evaluation and
// sampling. UserError when there is none.
int64_t find_checkpoint(const CheckpointStore& store, const std::filesystem::path& run,
                        const std::string& step);

}  // namespace narrowgauge::train
