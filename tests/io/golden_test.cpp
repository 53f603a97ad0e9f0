#include <ATen/ops/equal.h>

#include "tests/base/temporary_folder.h"
#include "tests/io/parameters.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace narrowgauge::io;
using namespace narrowgauge::test;

TEST_CASE("A golden model is exported to the bit as it was imported") {
  for (const std::filesystem::path& golden : golden_folders()) {
    INFO(golden);
    const narrowgauge::ModelConfig config = read_hugging_face_config(golden);
    const std::vector<NamedTensor> parameters = make_parameters(config);
    import_hugging_face(golden, config, parameters);
    const TemporaryFolder scratch;
    export_hugging_face(scratch / "out", config, parameters, fp32_options());
    const SafetensorsFile before(golden / "model.safetensors");
    const SafetensorsFile after(scratch / "out" / "model.safetensors");
    CHECK(before.tensors().size() == after.tensors().size());
    for (const auto& tensor : before.tensors()) {
      INFO(tensor.first);
      REQUIRE(after.contains(tensor.first));
      CHECK(at::equal(before.read(tensor.first), after.read(tensor.first)));
    }
    const nlohmann::json old_config = read_json(golden / "config.json");
    const nlohmann::json new_config = read_json(scratch / "out" / "config.json");
    for (const char* key :
         {"architectures", "model_type", "vocab_size", "hidden_size", "head_dim", "rms_norm_eps",
          "rope_parameters", "tie_word_embeddings", "num_key_value_heads", "dtype"}) {
      INFO(key);
      CHECK(old_config.at(key) == new_config.at(key));
    }
  }
}
