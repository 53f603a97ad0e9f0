#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/io/hugging_face.h"

namespace narrowgauge::io {
namespace {

using nlohmann::json;

struct Architecture {
  const char* name;
  const char* model_type;
  bool qk_norm;
  int64_t head_dim;  // what an absent head_dim means; 0: hidden_size / heads
};

constexpr Architecture kArchitectures[] = {{"LlamaForCausalLM", "llama", false, 0},
                                           {"Qwen3ForCausalLM", "qwen3", true, 128}};

// config.json, with typed access. A key that is null counts as absent.
class ConfigFile {
 public:
  explicit ConfigFile(const std::filesystem::path& folder) : path_(folder / "config.json") {
    const std::string text = read_file(path_);
    root_ = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!root_.is_object()) fail("is no valid JSON object");
  }

  [[noreturn]] void fail(const std::string& fault) const {
    throw UserError(fmt::format("{} {}", path_.string(), fault));
  }
  [[noreturn]] void refuse(const std::string& feature) const {
    fail(fmt::format("uses {}, which narrowgauge does not support", feature));
  }

  [[nodiscard]] const json* find(const char* key) const { return find(root_, key); }
  [[nodiscard]] static const json* find(const json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  [[nodiscard]] int64_t size(const char* key, std::optional<int64_t> absent = std::nullopt) const {
    constexpr int64_t kMost = 100'000'000;  // keeps every product of two sizes in 64 bits
    const json* value = find(key);
    if (value == nullptr && absent) return *absent;
    if (value == nullptr) fail(fmt::format("has no {}", key));
    if (!value->is_number_unsigned() || value->get<uint64_t>() < 1 || value->get<uint64_t>() > kMost) {
      fail(fmt::format("has {} = {}: must be a whole number from 1 to {}", key, shown(*value), kMost));
    }
    return value->get<int64_t>();
  }

  [[nodiscard]] double positive(const json& object, const char* key, double absent) const {
    const json* value = find(object, key);
    if (value == nullptr) return absent;
    if (!value->is_number() || !(value->get<double>() > 0)) {
      fail(fmt::format("has {} = {}: must be a number above 0", key, shown(*value)));
    }
    return value->get<double>();
  }

  [[nodiscard]] bool flag(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) fail(fmt::format("has {} = {}: must be true or false", key, shown(*value)));
    return value->get<bool>();
  }

  [[nodiscard]] std::string text(const json& object, const char* key, const char* absent) const {
    const json* value = find(object, key);
    if (value == nullptr) return absent;
    if (!value->is_string()) fail(fmt::format("has {} = {}: must be a text", key, shown(*value)));
    return value->get<std::string>();
  }

  [[nodiscard]] const json& root() const { return root_; }
  [[nodiscard]] static std::string shown(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 100);
  }

 private:
  std::filesystem::path path_;
  json root_;
};

// By "architectures" when given, else by "model_type"; both must agree.
const Architecture& architecture(const ConfigFile& file) {
  std::string name;
  if (const json* list = file.find("architectures")) {
    if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
      file.fail(
          fmt::format("has architectures = {}: must be a list with one name", ConfigFile::shown(*list)));
    }
    name = list->front().get<std::string>();
  }
  const std::string model_type = file.text(file.root(), "model_type", "");
  if (name.empty() && model_type.empty()) file.fail("has neither architectures nor model_type");
  for (const Architecture& known : kArchitectures) {
    if ((name.empty() || name == known.name) && (model_type.empty() || model_type == known.model_type)) {
      return known;
    }
  }
  file.fail(fmt::format(
      "describes {} (model_type {}); known are LlamaForCausalLM (llama) and Qwen3ForCausalLM (qwen3)",
      name.empty() ? "no architecture" : name, model_type.empty() ? "not given" : model_type));
}

// Old files have rope_theta and rope_scaling at the top, new ones rope_parameters, which wins.
double rope_theta(const ConfigFile& file) {
  double theta = file.positive(file.root(), "rope_theta", 10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* rope = file.find(key);
    if (rope == nullptr) continue;
    if (!rope->is_object())
      file.fail(fmt::format("has {} = {}: must be an object", key, ConfigFile::shown(*rope)));
    for (const auto& [name, value] : rope->items()) {
      if (value.is_object()) file.refuse(fmt::format("{} by layer type ({})", key, name));
    }
    const std::string old_type = file.text(*rope, "type", "default");
    const std::string type = file.text(*rope, "rope_type", old_type.c_str());
    if (type != "default") file.refuse(fmt::format("rope scaling ({}: rope_type \"{}\")", key, type));
    if (file.positive(*rope, "factor", 1.0) != 1.0)
      file.refuse(fmt::format("rope scaling ({}: factor)", key));
    if (file.positive(*rope, "partial_rotary_factor", 1.0) != 1.0)
      file.refuse("partial_rotary_factor below 1");
    theta = file.positive(*rope, "rope_theta", theta);
  }
  return theta;
}

void refuse_unsupported(const ConfigFile& file) {
  if (file.flag("attention_bias")) file.refuse("attention_bias = true");
  if (file.flag("mlp_bias")) file.refuse("mlp_bias = true");
  if (file.flag("use_sliding_window")) file.refuse("use_sliding_window = true");
  // Files of the known architectures that use no window say so, or do not name one.
  if (const json* window = file.find("sliding_window"); window && !file.find("use_sliding_window")) {
    file.refuse(fmt::format("sliding_window = {} (set it to null if the weights were trained without it)",
                            ConfigFile::shown(*window)));
  }
  if (const json* types = file.find("layer_types")) {
    if (!types->is_array()) file.fail("has layer_types that are no list");
    for (const json& type : *types) {
      if (type != "full_attention") file.refuse(fmt::format("layer_types with {}", ConfigFile::shown(type)));
    }
  }
  const std::string activation = file.text(file.root(), "hidden_act", "silu");
  if (activation != "silu") file.refuse(fmt::format("hidden_act \"{}\" (only silu)", activation));
  if (file.positive(file.root(), "partial_rotary_factor", 1.0) != 1.0) {
    file.refuse("partial_rotary_factor below 1");
  }
  if (file.find("quantization_config") != nullptr) file.refuse("quantization_config");
}

}  // namespace

ModelConfig read_hugging_face_config(const std::filesystem::path& folder) {
  const ConfigFile file(folder);
  const Architecture& known = architecture(file);
  refuse_unsupported(file);
  ModelConfig config;
  config.vocab_size = file.size("vocab_size");
  config.layers = file.size("num_hidden_layers");
  config.hidden_size = file.size("hidden_size");
  config.heads = file.size("num_attention_heads");
  config.kv_heads = file.size("num_key_value_heads", config.heads);
  if (config.heads % config.kv_heads != 0) {
    file.fail(fmt::format("has num_attention_heads = {}, which num_key_value_heads = {} does not divide",
                          config.heads, config.kv_heads));
  }
  const bool has_head_dim = file.find("head_dim") != nullptr || known.head_dim != 0;
  if (!has_head_dim && config.hidden_size % config.heads != 0) {
    file.fail(fmt::format("has no head_dim, and num_attention_heads = {} does not divide hidden_size = {}",
                          config.heads, config.hidden_size));
  }
  config.head_dim =
      file.size("head_dim", known.head_dim != 0 ? known.head_dim : config.hidden_size / config.heads);
  config.ffn_size = file.size("intermediate_size");
  config.rope_theta = rope_theta(file);
  config.norm_eps = file.positive(file.root(), "rms_norm_eps", 1e-6);
  config.qk_norm = known.qk_norm;
  config.tie_embeddings = file.flag("tie_word_embeddings");
  return config;
}

}  // namespace narrowgauge::io
