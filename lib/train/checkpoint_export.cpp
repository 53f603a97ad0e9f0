#include "lib/train/checkpoint_export.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/error.h"
#include "lib/data/tokenizer.h"
#include "lib/io/hugging_face.h"
#include "lib/model/parameters.h"
#include "lib/optim/master.h"
#include "lib/train/checkpoint.h"
#include "lib/train/run_folder.h"
#include "lib/train/setup.h"

namespace narrowgauge::train {
namespace {

// One of the optimizer's flat tensors, which must match the flat weights.
at::Tensor read_flat(const io::SafetensorsFile& file, const std::string& name, const at::Tensor& weights,
                     at::ScalarType dtype) {
  at::Tensor flat = file.read(name);
  if (flat.scalar_type() != dtype || flat.sizes() != weights.sizes()) {
    throw UserError(fmt::format("{}: tensor \"{}\" does not fit the weights of the checkpoint",
                                file.path().string(), name));
  }
  return flat;
}

// The flat weights as the optimizer knows them.
at::Tensor master_weights(const io::SafetensorsFile& optimizer, const at::Tensor& weights) {
  if (weights.scalar_type() == at::kBFloat16) {
    if (optimizer.contains(optim::kMasterName)) {
      return read_flat(optimizer, optim::kMasterName, weights, at::kFloat);
    }
    if (optimizer.contains(optim::kRemainderName)) {
      return optim::join_masters(weights, read_flat(optimizer, optim::kRemainderName, weights, at::kShort));
    }
  }
  return weights;
}

// The tokenizer's files in the run folder.
std::vector<std::filesystem::path> tokenizer_files(const std::filesystem::path& run) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    if (entry.is_regular_file() && entry.path().stem() == "tokenizer") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool adds_prefix(const data::Tokenizer& tokenizer) {
  return tokenizer.encode("a") != tokenizer.encode_continuation("a");
}

}  // namespace

void export_checkpoint(const std::filesystem::path& run, const std::string& step, at::ScalarType dtype,
                       const std::filesystem::path& folder) {
  const CheckpointStore store(run);
  const int64_t number = find_checkpoint(store, run, step);
  const Config config = store.read_state(number).config;
  const at::ScalarType stored = config.train.dtype == "fp32" ? at::kFloat : at::kBFloat16;
  const model::ParameterArena arena(config.model, stored, at::kCPU);
  store.load_tensors(number, named_weights(arena), {});
  const at::Tensor flat = dtype == at::kFloat
                              ? master_weights(store.optimizer_tensors(number), arena.weights())
                              : arena.weights();
  std::vector<io::NamedTensor> parameters;
  for (const model::ParameterSlot& slot : arena.slots()) {
    parameters.emplace_back(slot.spec.name, flat.narrow(0, slot.offset, slot.count).view(slot.spec.shape));
  }
  const auto tokenizer = data::load_tokenizer(run);
  const auto end_of_document =
      tokenizer ? tokenizer->end_of_document() : static_cast<int32_t>(config.data.end_of_document);
  io::export_hugging_face(folder, config.model, parameters,
                          {.dtype = dtype,
                           .max_context = config.data.context,
                           .eos_token = end_of_document,
                           .extra_files = tokenizer_files(run),
                           .tokenizer_prefix = tokenizer && adds_prefix(*tokenizer)});
}

}  // namespace narrowgauge::train
