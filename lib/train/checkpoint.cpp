#include "lib/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lib/base/checksum.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/staged_folder.h"
#include "lib/io/dtype.h"
#include "lib/train/checkpoint_manifest.h"
#include "lib/train/checkpoint_state.h"

namespace narrowgauge::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kConfig = "config.yaml";
constexpr const char* kChoices = "choices.json";
constexpr std::string_view kFolderPrefix = "step-";
constexpr int64_t kOverheadBytes = 1 << 20;  // headers and small files

// The step in "step-00000500".
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kFolderPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kFolderPrefix.size(), end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end || step < 0) return std::nullopt;
  return step;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    paths.push_back(it->path());
  }
  return paths;
}

bool is_complete(const fs::path& folder) {
  try {
    check_sizes(folder, read_manifest(folder));
    return true;
  } catch (const UserError&) {
    return false;
  }
}

io::WrittenFile write_text(const fs::path& path, const std::string& text) {
  atomic_write_file(path, text);
  return {static_cast<int64_t>(text.size()), checksum(text)};
}

int64_t bytes_of(const std::vector<io::NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<int64_t>(tensor.second.nbytes());
  return bytes;
}

// Takes the folder out of sight first, so that no half removed checkpoint is ever seen.
void remove_checkpoint(const fs::path& folder) {
  const fs::path hidden = folder.parent_path() / (kStagedPrefix + folder.filename().string() + "-old");
  fs::rename(folder, hidden);
  remove_tree(hidden);
}

void load_file(const fs::path& path, const std::vector<io::NamedTensor>& tensors) {
  const io::SafetensorsFile file(path);
  for (const auto& [name, tensor] : tensors) {
    const io::TensorInfo& info = file.info(name);
    if (info.dtype != tensor.scalar_type() || at::IntArrayRef(info.shape) != tensor.sizes()) {
      throw UserError(fmt::format("{}: tensor \"{}\" is {} {}, this run has {} {}", path.string(), name,
                                  c10::toString(info.dtype), io::shape_text(info.shape),
                                  c10::toString(tensor.scalar_type()), io::shape_text(tensor.sizes())));
    }
  }
  for (const auto& entry : file.tensors()) {
    const bool known = std::any_of(tensors.begin(), tensors.end(), [&](const io::NamedTensor& tensor) {
      return tensor.first == entry.first;
    });
    if (!known) {
      throw UserError(fmt::format("{}: this run has no tensor \"{}\"", path.string(), entry.first));
    }
  }
  for (const auto& [name, tensor] : tensors) file.read_into(name, tensor);
}

}  // namespace

CheckpointStore::CheckpointStore(fs::path run) : run_(std::move(run)) {}

fs::path CheckpointStore::folder(int64_t step) const {
  return run_ / "checkpoints" / fmt::format("{}{:08}", kFolderPrefix, step);
}

fs::path CheckpointStore::choices_file(int64_t step) const { return folder(step) / kChoices; }

std::vector<int64_t> CheckpointStore::complete() const {
  std::vector<int64_t> steps;
  for (const fs::path& path : entries(run_ / "checkpoints")) {
    const auto step = step_of(path.filename().string());
    if (step && path.filename() == folder(*step).filename() && is_complete(path)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<int64_t> CheckpointStore::newest() const {
  const std::vector<int64_t> steps = complete();
  if (steps.empty()) return std::nullopt;
  return steps.back();
}

void CheckpointStore::save(const CheckpointState& state, int64_t keep_last, int64_t keep_every) {
  remove_stale();
  const fs::path target = folder(state.step);
  require_free_space(
      target, bytes_of(state.weights) + bytes_of(state.optimizer) + kOverheadBytes,
      fmt::format("free some space, lower train.keep_last (now {}), or resume from a copy of the run "
                  "folder on a larger disk",
                  keep_last));
  StagedFolder temporary(target);
  const fs::path& path = temporary.path();
  Manifest manifest;
  manifest[kWeights] = io::write_safetensors(path / kWeights, state.weights);
  manifest[kOptimizer] = io::write_safetensors(path / kOptimizer, state.optimizer);
  manifest[kState] = write_text(path / kState, format_state(state));
  manifest[kConfig] = write_text(path / kConfig, dump_config(state.config));
  if (!state.choices.empty()) manifest[kChoices] = write_text(path / kChoices, state.choices);
  write_manifest(path, manifest);
  temporary.publish();
  prune(state.step, keep_last, keep_every);
}

void CheckpointStore::remove_stale() const {
  for (const fs::path& path : entries(run_ / "checkpoints")) {
    if (path.filename().string().starts_with(kStagedPrefix)) remove_tree(path);
  }
}

void CheckpointStore::prune(int64_t saved, int64_t keep_last, int64_t keep_every) const {
  const std::vector<int64_t> steps = complete();
  const auto up_to_saved = std::upper_bound(steps.begin(), steps.end(), saved) - steps.begin();
  const int64_t first_kept = up_to_saved - std::max<int64_t>(keep_last, 1);
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const bool kept = index >= first_kept || (keep_every > 0 && steps[i] % keep_every == 0);
    if (kept && steps[i] <= saved) continue;
    try {
      remove_checkpoint(folder(steps[i]));
    } catch (const std::exception& error) {  // the new checkpoint is safe, so the run goes on
      log_warn(fmt::format("cannot remove the checkpoint {}: {}", folder(steps[i]).string(), error.what()));
    }
  }
}

CheckpointState CheckpointStore::read_state(int64_t step) const {
  const fs::path path = folder(step);
  try {
    const Manifest manifest = read_manifest(path);
    check_contents(path, manifest);
    CheckpointState state;
    parse_state(read_file(path / kState), path / kState, state);
    state.config = load_config(path / kConfig, {});
    if (manifest.contains(kChoices)) state.choices = read_file(path / kChoices);
    return state;
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}; {}", error.what(), remedy(step)));
  }
}

std::string CheckpointStore::remedy(int64_t step) const {
  const std::vector<int64_t> steps = complete();
  const auto newer = std::lower_bound(steps.begin(), steps.end(), step);
  if (newer == steps.begin())
    return "there is no older complete checkpoint: restore it from a copy or start afresh";
  return fmt::format("use the older checkpoint of step {} ({})", *std::prev(newer),
                     folder(*std::prev(newer)).string());
}

void CheckpointStore::load_tensors(int64_t step, const std::vector<io::NamedTensor>& weights,
                                   const std::vector<io::NamedTensor>& optimizer) const {
  load_file(folder(step) / kWeights, weights);
  if (!optimizer.empty()) load_file(folder(step) / kOptimizer, optimizer);
}

io::SafetensorsFile CheckpointStore::optimizer_tensors(int64_t step) const {
  return io::SafetensorsFile(folder(step) / kOptimizer);
}

}  // namespace narrowgauge::train
