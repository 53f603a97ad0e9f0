#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/io/dtype.h"
#include "lib/io/hugging_face.h"
#include "lib/io/hugging_face_parts.h"

namespace narrowgauge::io {
namespace {

using nlohmann::json;

// The weights of a folder, in one file or many.
class Weights {
 public:
  explicit Weights(const std::filesystem::path& folder) {
    const std::filesystem::path single = folder / "model.safetensors";
    const std::filesystem::path index = folder / "model.safetensors.index.json";
    std::error_code error;
    if (std::filesystem::exists(single, error)) {
      const SafetensorsFile& file = open(single);
      for (const auto& tensor : file.tensors()) files_[tensor.first] = &file;
    } else if (std::filesystem::exists(index, error)) {
      read_index(index);
    } else {
      throw UserError(
          fmt::format("{} has neither model.safetensors nor model.safetensors.index.json", folder.string()));
    }
  }

  [[nodiscard]] const std::map<std::string, const SafetensorsFile*>& files() const { return files_; }

 private:
  const SafetensorsFile& open(const std::filesystem::path& path) {
    auto& file = open_[path.filename().string()];
    if (!file) file = std::make_unique<SafetensorsFile>(path);
    return *file;
  }

  void read_index(const std::filesystem::path& path) {
    const json index = json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
      throw UserError(fmt::format("{} is no JSON object with a weight_map", path.string()));
    }
    for (const auto& [name, shard] : index["weight_map"].items()) {
      const std::string file = shard.is_string() ? shard.get<std::string>() : "";
      if (file.empty() || std::filesystem::path(file).filename() != file || file == "." || file == "..") {
        throw UserError(fmt::format("{}: the file of tensor \"{}\" must be a name inside the folder",
                                    path.string(), name));
      }
      const SafetensorsFile& opened = open(path.parent_path() / file);
      static_cast<void>(opened.info(name));
      files_[name] = &opened;
    }
  }

  std::map<std::string, std::unique_ptr<SafetensorsFile>> open_;  // by file name
  std::map<std::string, const SafetensorsFile*> files_;           // by tensor
};

// Buffers that old files carry and that are computed here, and the copy of the embedding as a tied head.
bool is_redundant(const std::string& name, const ModelConfig& config) {
  return name.ends_with(".rotary_emb.inv_freq") || (config.tie_embeddings && name == "lm_head.weight");
}

void check_part(const SafetensorsFile& file, const HuggingFacePart& part) {
  const TensorInfo& info = file.info(part.name);
  if (info.shape != part.shape) {
    throw UserError(fmt::format("{}: tensor \"{}\" has shape {}, config.json asks for {}",
                                file.path().string(), part.name, shape_text(info.shape),
                                shape_text(part.shape)));
  }
  if (!at::isFloatingType(info.dtype)) {
    throw UserError(
        fmt::format("{}: tensor \"{}\" is not of a floating-point dtype", file.path().string(), part.name));
  }
}

}  // namespace

void import_hugging_face(const std::filesystem::path& folder, const ModelConfig& config,
                         const std::vector<NamedTensor>& parameters) {
  const Weights weights(folder);
  const std::vector<HuggingFacePart> parts = hugging_face_parts(config);
  std::map<std::string, const SafetensorsFile*> rest = weights.files();
  for (const HuggingFacePart& part : parts) {
    const auto found = rest.find(part.name);
    if (found == rest.end())
      throw UserError(fmt::format("{} has no tensor \"{}\"", folder.string(), part.name));
    check_part(*found->second, part);
    rest.erase(found);
  }
  for (const auto& unexpected : rest) {
    if (is_redundant(unexpected.first, config)) continue;
    throw UserError(fmt::format("{} has a tensor \"{}\" that the architecture in config.json does not have",
                                unexpected.second->path().string(), unexpected.first));
  }
  for (const HuggingFacePart& part : parts) {
    weights.files().at(part.name)->read_into(part.name, view_of(part, parameters));
  }
}

}  // namespace narrowgauge::io
