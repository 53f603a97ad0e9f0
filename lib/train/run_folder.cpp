#include "lib/train/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/text.h"

namespace narrowgauge::train {
namespace fs = std::filesystem;
namespace {

const fs::path& created(const fs::path& path) {
  make_folder(path);
  return path;
}

bool holds_run(const fs::path& path, const CheckpointStore& checkpoints) {
  return fs::exists(path / "config.yaml") || fs::exists(path / "metrics.jsonl") ||
         checkpoints.newest().has_value();
}

}  // namespace

int64_t find_checkpoint(const CheckpointStore& store, const fs::path& run, const std::string& step) {
  const std::vector<int64_t> steps = store.complete();
  if (steps.empty()) {
    throw UserError(fmt::format("{} holds no complete checkpoint; give the folder of a run that saved one",
                                run.string()));
  }
  if (step.empty()) return steps.back();
  int64_t number = -1;
  const char* const end = step.data() + step.size();
  const auto [rest, error] = std::from_chars(step.data(), end, number);
  if (error != std::errc() || rest != end || !std::binary_search(steps.begin(), steps.end(), number)) {
    std::vector<std::string> names;
    for (const int64_t s : steps) names.push_back(std::to_string(s));
    throw UserError(fmt::format("{} holds no complete checkpoint of step {}; there are: {}", run.string(),
                                step, join(names)));
  }
  return number;
}

namespace {

// Checkpoint folders that are not complete. A save that was killed leaves none: it works under another name.
std::vector<std::string> damaged_checkpoints(const fs::path& run, const CheckpointStore& store) {
  std::set<fs::path> complete;
  for (const int64_t step : store.complete()) complete.insert(store.folder(step).filename());
  std::vector<std::string> damaged;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints", none)) {
    const fs::path name = entry.path().filename();
    if (name.string().starts_with("step-") && !complete.contains(name)) damaged.push_back(name.string());
  }
  std::sort(damaged.begin(), damaged.end());
  return damaged;
}

}  // namespace

RunFolder::RunFolder(fs::path path, const std::string& resume)
    : path_(std::move(path)), lock_(created(path_)), checkpoints_(path_) {
  if (resume.empty() && holds_run(path_, checkpoints_)) {
    throw UserError(
        fmt::format("{} already holds a run; continue it with --resume auto, or give another folder with "
                    "--run",
                    path_.string()));
  }
  set_log_file(path_ / "log.txt");
  resume_step_ = find_resume_step(resume);
  if (!resume_step_) fs::remove(metrics());  // rows of a run that never saved
}

RunFolder::~RunFolder() { close_log_file(); }

std::optional<int64_t> RunFolder::find_resume_step(const std::string& resume) const {
  if (resume.empty()) return std::nullopt;
  if (resume != "auto") return find_checkpoint(checkpoints_, path_, resume);
  const auto newest = checkpoints_.newest();
  const std::vector<std::string> damaged = damaged_checkpoints(path_, checkpoints_);
  if (!damaged.empty() && !newest) {
    throw UserError(
        fmt::format("{} holds only damaged checkpoints ({}): a file is missing or has another size than its "
                    "manifest says; restore them, or start another run folder",
                    path_.string(), join(damaged)));
  }
  if (!damaged.empty()) {
    log_warn(fmt::format("{}: damaged and passed over: {}", path_.string(), join(damaged)));
  }
  if (!newest) log_info(fmt::format("{} holds no complete checkpoint: starting afresh", path_.string()));
  return newest;
}

bool RunFolder::take_save_request() const {
  std::error_code ignored;
  return fs::remove(path_ / "save", ignored);
}

}  // namespace narrowgauge::train
