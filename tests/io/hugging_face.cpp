#include "lib/io/hugging_face.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "tests/base/temporary_folder.h"
#include "tests/io/files.h"
#include "tests/io/parameters.h"
#include "tests/support/catch.h"

using narrowgauge::ModelConfig;
using narrowgauge::UserError;
using narrowgauge::io::export_hugging_face;
using narrowgauge::io::ExportOptions;
using narrowgauge::io::import_hugging_face;
using narrowgauge::io::NamedTensor;
using narrowgauge::io::read_hugging_face_config;
using narrowgauge::io::SafetensorsFile;
using narrowgauge::io::write_safetensors;
using narrowgauge::test::fp32_options;
using narrowgauge::test::lacks;
using narrowgauge::test::make_parameters;
using narrowgauge::test::read_bytes;
using narrowgauge::test::read_json;
using narrowgauge::test::refusal;
using narrowgauge::test::TemporaryFolder;
using narrowgauge::test::write_bytes;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

std::vector<NamedTensor> random_parameters(const ModelConfig& config) {
  std::vector<NamedTensor> parameters = make_parameters(config);
  for (NamedTensor& tensor : parameters) tensor.second.normal_();
  return parameters;
}

ModelConfig small_config() {
  ModelConfig config;
  config.vocab_size = 50;
  config.layers = 2;
  config.hidden_size = 24;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;  // wider than hidden / heads
  config.ffn_size = 40;
  config.rope_theta = 500000;
  config.norm_eps = 1e-6;
  config.tie_embeddings = false;
  return config;
}

void check_equal(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO(a[i].first);
    CHECK(a[i].first == b[i].first);
    CHECK(at::equal(a[i].second, b[i].second));
  }
}

// A folder with an exported model whose config.json a test changes.
class Folder {
 public:
  explicit Folder(const ModelConfig& config = small_config()) : path(scratch_ / "model") {
    export_hugging_face(path, config, random_parameters(config), fp32_options());
  }
  void set(const std::string& key, const json& value) {
    json root = read_json(path / "config.json");
    root[key] = value;
    write_bytes(path / "config.json", root.dump());
  }
  void erase(const std::string& key) {
    json root = read_json(path / "config.json");
    root.erase(key);
    write_bytes(path / "config.json", root.dump());
  }
  [[nodiscard]] std::string config_refusal() const {
    const std::string message = refusal([&] { read_hugging_face_config(path); });
    if (message != "accepted") CHECK(lacks(message, {"config.json"}) == "");
    return message;
  }

 private:
  TemporaryFolder scratch_;

 public:
  const fs::path path;
};

std::string refused_with(const std::string& key, const json& value) {
  Folder folder;
  folder.set(key, value);
  return folder.config_refusal();
}

}  // namespace

TEST_CASE("Every layout survives export and import, in one file and in shards") {
  for (const bool qk_norm : {false, true}) {
    for (const bool tied : {false, true}) {
      for (const int64_t shard_bytes : {int64_t{1} << 40, int64_t{9000}}) {
        ModelConfig config = small_config();
        config.qk_norm = qk_norm;
        config.tie_embeddings = tied;
        const auto parameters = random_parameters(config);
        ExportOptions options = fp32_options();
        options.shard_bytes = shard_bytes;
        const TemporaryFolder scratch;
        export_hugging_face(scratch / "out", config, parameters, options);
        CHECK(fs::exists(scratch / "out" / "model.safetensors") == (shard_bytes > 9000));
        CHECK(fs::exists(scratch / "out" / "model.safetensors.index.json") == (shard_bytes == 9000));
        const ModelConfig back = read_hugging_face_config(scratch / "out");
        CHECK(back.qk_norm == qk_norm);
        CHECK(back.tie_embeddings == tied);
        CHECK(back.head_dim == 8);
        CHECK(back.rope_theta == 500000);
        const auto imported = make_parameters(back);
        import_hugging_face(scratch / "out", back, imported);
        check_equal(parameters, imported);
      }
    }
  }
}

TEST_CASE("An export in bf16 holds rounded weights and names the dtype") {
  const TemporaryFolder scratch;
  const ModelConfig config = small_config();
  const auto parameters = random_parameters(config);
  ExportOptions options = fp32_options();
  options.dtype = at::kBFloat16;
  options.eos_token = 7;
  write_bytes(scratch / "tokenizer.byte", "bytes");
  options.extra_files = {scratch / "tokenizer.byte"};
  export_hugging_face(scratch / "out/", config, parameters, options);
  const at::Tensor head = SafetensorsFile(scratch / "out" / "model.safetensors").read("lm_head.weight");
  CHECK(at::equal(head, parameters.back().second.to(at::kBFloat16)));
  const json written = read_json(scratch / "out" / "config.json");
  CHECK(written["dtype"] == "bfloat16");
  CHECK(written["max_position_embeddings"] == 64);
  CHECK(written["eos_token_id"] == 7);
  CHECK(written["bos_token_id"].is_null());
  CHECK(read_json(scratch / "out" / "generation_config.json")["eos_token_id"] == 7);
  CHECK(read_bytes(scratch / "out" / "tokenizer.byte") == "bytes");
  CHECK(lacks(refusal([&] { export_hugging_face(scratch / "out", config, parameters, options); }),
              {"not empty"}) == "");
}

TEST_CASE("A SentencePiece model comes with what makes transformers load it") {
  const TemporaryFolder scratch;
  write_bytes(scratch / "tokenizer.model", "pieces");
  ExportOptions options = fp32_options();
  options.extra_files = {scratch / "tokenizer.model"};
  options.tokenizer_prefix = true;
  const ModelConfig config = small_config();
  export_hugging_face(scratch / "out", config, random_parameters(config), options);
  CHECK(read_bytes(scratch / "out" / "tokenizer.model") == "pieces");
  const json tokenizer = read_json(scratch / "out" / "tokenizer_config.json");
  CHECK(tokenizer["tokenizer_class"] == "LlamaTokenizer");
  CHECK(tokenizer["add_prefix_space"] == true);
}

TEST_CASE("An export that fails leaves nothing behind") {
  const TemporaryFolder scratch;
  const ModelConfig config = small_config();
  ExportOptions options = fp32_options();
  options.extra_files = {scratch / "absent"};
  CHECK_THROWS_AS(export_hugging_face(scratch / "out", config, random_parameters(config), options),
                  UserError);
  CHECK(fs::is_empty(scratch.path()));
}

TEST_CASE("Old and absent keys of config.json are understood") {
  Folder folder;
  folder.erase("rope_parameters");
  CHECK(read_hugging_face_config(folder.path).rope_theta == 500000);
  folder.erase("rope_theta");
  CHECK(read_hugging_face_config(folder.path).rope_theta == 10000);
  folder.set("rope_parameters", {{"rope_theta", 123.0}});
  CHECK(read_hugging_face_config(folder.path).rope_theta == 123);
  folder.set("rope_scaling", nullptr);
  folder.set("sliding_window", 4096);
  folder.set("use_sliding_window", false);
  folder.set("layer_types", {"full_attention", "full_attention"});
  folder.erase("dtype");
  folder.erase("architectures");
  folder.erase("head_dim");
  folder.erase("num_key_value_heads");
  const ModelConfig config = read_hugging_face_config(folder.path);
  CHECK(config.head_dim == 6);
  CHECK(config.kv_heads == 4);
  CHECK(config.init_from.empty());
}

TEST_CASE("Unsupported features are refused by name") {
  CHECK(lacks(refused_with("attention_bias", true), {"attention_bias"}) == "");
  CHECK(lacks(refused_with("mlp_bias", true), {"mlp_bias"}) == "");
  CHECK(lacks(refused_with("rope_scaling", {{"type", "linear"}, {"factor", 2.0}}), {"rope scaling"}) == "");
  CHECK(lacks(refused_with("rope_parameters", {{"rope_type", "llama3"}, {"rope_theta", 1e4}}), {"llama3"}) ==
        "");
  CHECK(lacks(refused_with("rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}),
              {"by layer type"}) == "");
  CHECK(lacks(refused_with("rope_parameters", {{"partial_rotary_factor", 0.5}}), {"partial_rotary_factor"}) ==
        "");
  CHECK(lacks(refused_with("partial_rotary_factor", 0.25), {"partial_rotary_factor"}) == "");
  CHECK(lacks(refused_with("use_sliding_window", true), {"use_sliding_window"}) == "");
  CHECK(lacks(refused_with("sliding_window", 4096), {"sliding_window = 4096"}) == "");
  CHECK(refused_with("sliding_window", nullptr) == "accepted");
  CHECK(lacks(refused_with("layer_types", {"full_attention", "sliding_attention"}), {"sliding_attention"}) ==
        "");
  CHECK(lacks(refused_with("hidden_act", "gelu"), {"hidden_act", "gelu"}) == "");
  CHECK(lacks(refused_with("quantization_config", {{"bits", 4}}), {"quantization_config"}) == "");
  CHECK(lacks(refused_with("architectures", {"MistralForCausalLM"}), {"MistralForCausalLM"}) == "");
  CHECK(lacks(refused_with("model_type", "mistral"), {"mistral"}) == "");
  CHECK(lacks(refused_with("model_type", "qwen3"), {"LlamaForCausalLM"}) == "");
  CHECK(lacks(refused_with("vocab_size", 0), {"vocab_size"}) == "");
  CHECK(lacks(refused_with("hidden_size", "64"), {"hidden_size"}) == "");
  CHECK(lacks(refused_with("num_hidden_layers", nullptr), {"num_hidden_layers"}) == "");
  CHECK(lacks(refused_with("num_key_value_heads", 3), {"num_key_value_heads"}) == "");
  CHECK(lacks(refused_with("rms_norm_eps", -1), {"rms_norm_eps"}) == "");
}

TEST_CASE("A missing or malformed config.json is the user's error") {
  Folder folder;
  write_bytes(folder.path / "config.json", "{\"a\":");
  CHECK(lacks(folder.config_refusal(), {"no valid JSON"}) == "");
  write_bytes(folder.path / "config.json", "[]");
  CHECK(lacks(folder.config_refusal(), {"no valid JSON object"}) == "");
  fs::remove(folder.path / "config.json");
  CHECK(lacks(folder.config_refusal(), {"config.json"}) == "");
}

TEST_CASE("Missing, unexpected and wrongly shaped tensors are refused before anything is filled") {
  Folder folder;
  const ModelConfig config = read_hugging_face_config(folder.path);
  const fs::path weights = folder.path / "model.safetensors";
  std::vector<NamedTensor> tensors;
  {
    const SafetensorsFile file(weights);
    for (const auto& tensor : file.tensors()) tensors.emplace_back(tensor.first, file.read(tensor.first));
  }
  const auto import = [&] {
    const auto parameters = make_parameters(config);
    const std::string message = refusal([&] { import_hugging_face(folder.path, config, parameters); });
    if (message != "accepted") {
      for (const NamedTensor& tensor : parameters) CHECK(tensor.second.count_nonzero().item<int64_t>() == 0);
    }
    return message;
  };
  CHECK(import() == "accepted");

  auto changed = tensors;
  changed.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", at::zeros({4}));
  write_safetensors(weights, changed);
  CHECK(import() == "accepted");
  changed.back().first = "model.layers.0.self_attn.q_proj.bias";
  write_safetensors(weights, changed);
  CHECK(lacks(import(), {"q_proj.bias"}) == "");
  changed = tensors;
  changed.pop_back();
  write_safetensors(weights, changed);
  CHECK(lacks(import(), {"has no tensor \"" + tensors.back().first + "\""}) == "");
  changed = tensors;
  changed.back().second = at::zeros({25});
  write_safetensors(weights, changed);
  CHECK(lacks(import(), {"(25), config.json asks for (24)"}) == "");
  changed.back().second = at::zeros({24}, at::kInt);
  write_safetensors(weights, changed);
  CHECK(lacks(import(), {"floating-point"}) == "");
  fs::remove(weights);
  CHECK(lacks(import(), {"has neither model.safetensors nor"}) == "");
  write_bytes(folder.path / "model.safetensors.index.json", R"({"weight_map":{"a":"../x"}})");
  CHECK(lacks(import(), {"a name inside the folder"}) == "");
  write_bytes(folder.path / "model.safetensors.index.json", R"({"weight_map":{"a":"absent.safetensors"}})");
  CHECK(lacks(import(), {"absent.safetensors"}) == "");
  write_bytes(folder.path / "model.safetensors.index.json", R"({"weight_map":3})");
  CHECK(lacks(import(), {"weight_map"}) == "");
}

TEST_CASE("A tied model may carry its head") {
  ModelConfig config = small_config();
  config.tie_embeddings = true;
  Folder folder(config);
  const fs::path weights = folder.path / "model.safetensors";
  std::vector<NamedTensor> tensors;
  {
    const SafetensorsFile file(weights);
    for (const auto& tensor : file.tensors()) tensors.emplace_back(tensor.first, file.read(tensor.first));
  }
  tensors.emplace_back("lm_head.weight", at::zeros({50, 24}));
  write_safetensors(weights, tensors);
  const auto parameters = make_parameters(config);
  import_hugging_face(folder.path, config, parameters);
  CHECK(parameters.front().second.count_nonzero().item<int64_t>() > 0);
}
