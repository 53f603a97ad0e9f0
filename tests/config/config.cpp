// What a good config becomes: values, overrides, dump, documentation, presets.
#include "lib/config/config.h"

#include <fmt/format.h>

#include <fstream>
#include <regex>
#include <string>

#include "lib/base/file.h"
#include "lib/config/schema.h"
#include "tests/support/catch.h"

using namespace narrowgauge;

namespace {

Config parse(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_config(yaml, "test.yaml", overrides);
}

const std::string kSource = NARROWGAUGE_SOURCE_DIR;

}  // namespace

TEST_CASE("an empty file and empty sections are the defaults") {
  const std::string defaults = dump_config(Config{});
  CHECK(dump_config(parse("")) == defaults);
  CHECK(dump_config(parse("# only a comment\n")) == defaults);
  CHECK(dump_config(parse("train:\nlog: {}\n")) == defaults);
}

TEST_CASE("every kind of key is read") {
  const Config config = parse(
      "model: {layers: 2, rope_theta: 5e5, qk_norm: true}\n"
      "data:\n  train: data/a b#c\n  val: \"quoted: text\"\n"
      "optim: {lr: +1, state: fp32, schedule: \"wsd\"}\n"
      "train: {micro_batch: 4, seed: 7}\n"
      "memory: {recompute: [none, ffn+qkv], budget: 14.5GiB}\n");
  CHECK(config.model.layers == 2);
  CHECK(config.model.rope_theta == 5e5);
  CHECK(config.model.qk_norm);
  CHECK(config.data.train == "data/a b#c");
  CHECK(config.data.val == "quoted: text");
  CHECK(config.optim.lr == 1.0);
  CHECK(config.optim.state == "fp32");
  CHECK(config.optim.schedule == "wsd");
  CHECK(config.train.micro_batch == 4);
  CHECK(config.memory.recompute == std::vector{RecomputeLevel::none, RecomputeLevel::ffn_qkv});
  CHECK(config.memory.budget == 15569256448);
}

TEST_CASE("auto is accepted where something is chosen") {
  const Config config = parse("train: {micro_batch: auto}\nmemory: {recompute: auto, budget: auto}\n");
  CHECK(config.train.micro_batch == 0);
  CHECK(config.memory.recompute.empty());
  CHECK(config.memory.budget == 0);
}

TEST_CASE("train.deterministic is auto unless it is said") {
  CHECK(parse("").train.deterministic == "auto");
  CHECK_FALSE(parse("").train.is_deterministic());
  for (const std::string value : {"auto", "true", "false"}) {
    const Config config = parse("train: {deterministic: " + value + "}\n");
    CHECK(config.train.deterministic == value);
    CHECK(config.train.is_deterministic() == (value == "true"));
    CHECK(parse(dump_config(config)).train.deterministic == value);
    CHECK(parse("", {"train.deterministic=" + value}).train.deterministic == value);
  }
}

TEST_CASE("every recompute level has a name that reads back") {
  for (const auto level : {RecomputeLevel::none, RecomputeLevel::elementwise, RecomputeLevel::ffn,
                           RecomputeLevel::ffn_qkv, RecomputeLevel::block}) {
    const Config config = parse("", {fmt::format("memory.recompute={}", recompute_name(level))});
    CHECK(config.memory.recompute == std::vector{level});
  }
}

TEST_CASE("overrides come after the file, the last one wins, text stands as it is") {
  const Config config =
      parse("train: {steps: 500}\n",
            {"train.steps=600", "train.steps=700", "data.train=a: [b], \"c\" # d",
             "data.val=", "train.sample_prompt=x=y", "model.layers=2", "memory.recompute=[none, block]",
             "memory.budget=512MiB", "memory.attention_workspace=0"});
  CHECK(config.train.steps == 700);
  CHECK(config.data.train == "a: [b], \"c\" # d");
  CHECK(config.data.val.empty());
  CHECK(config.train.sample_prompt == "x=y");
  CHECK(config.memory.recompute.size() == 2);
  CHECK(config.memory.budget == int64_t{512} << 20);
  CHECK(config.memory.attention_workspace == 0);
}

TEST_CASE("a dump reads back to the same config") {
  Config config = parse("model: {layers: 3}\nmemory: {recompute: [none, ffn, block]}\n");
  config.data.train = "tab\there, \"quotes\", back\\slash, line\nbreak, # sharp, gr\xc3\xbc\xc3\x9f";
  config.data.val = "null";
  config.train.sample_prompt = std::string("\x01\x7f: -", 5);
  config.optim.lr = 0.1 + 0.2;
  config.optim.eps = 4.9406564584124654e-324;
  config.optim.weight_decay = 1.7976931348623157e308;
  config.model.rope_theta = 1e22;
  config.memory.budget = 123456789;
  config.memory.attention_workspace = 0;
  const std::string once = dump_config(config);
  const Config back = parse(once);
  CHECK(dump_config(back) == once);
  CHECK(back.data.train == config.data.train);
  CHECK(back.data.val == "null");
  CHECK(back.train.sample_prompt == config.train.sample_prompt);
  CHECK(back.optim.lr == config.optim.lr);
  CHECK(back.optim.eps == config.optim.eps);
  CHECK(back.optim.weight_decay == config.optim.weight_decay);
  CHECK(back.memory.budget == 123456789);
  CHECK(back.memory.attention_workspace == 0);
}

TEST_CASE("every key is in the dump and explained by one sentence") {
  const std::string plain = explain_config(false), markdown = explain_config(true),
                    dump = dump_config(Config{});
  for (const ConfigSection& section : config_schema()) {
    for (const ConfigKey& key : section.keys) {
      INFO(key.path());
      CHECK(plain.find(key.path() + "\n") != std::string::npos);
      CHECK(markdown.find("| `" + key.path() + "` |") != std::string::npos);
      CHECK(dump.find("\n  " + key.name + ": ") != std::string::npos);
      CHECK(key.help.size() > 10);
      CHECK(key.help.back() == '.');
      CHECK(key.help.find('|') == std::string::npos);  // would break the table
    }
  }
  CHECK(plain.find("train.steps\n    integer (optimizer steps), default 1000; 1 or more\n") !=
        std::string::npos);
}

TEST_CASE("docs/configuration.md is what the program says") {
  INFO("to mend it: narrowgauge config --explain --markdown > docs/configuration.md");
  CHECK((read_file(kSource + "/docs/configuration.md") == explain_config(true)));
}

TEST_CASE("parameters are counted") {
  ModelConfig model;  // the 977M model
  CHECK(model.parameter_count() == 976770816);
  model.tie_embeddings = false;
  CHECK(model.parameter_count() == 976770816 + 32000 * 1792);
  ModelConfig small;
  small.vocab_size = 10, small.layers = 1, small.hidden_size = 8, small.heads = 2, small.kv_heads = 1;
  small.head_dim = 6, small.ffn_size = 16, small.qk_norm = true;
  // embedding + norms + (q k v) + norms of heads + out + gate, up, down
  CHECK(small.parameter_count() == 80 + 24 + (12 + 6 + 6) * 8 + 12 + 12 * 8 + 3 * 8 * 16);
}

TEST_CASE("presets load and comment every key") {
  for (const std::string preset : {"quickstart", "124m", "1b-16gb"}) {
    INFO(preset);
    const std::string path = kSource + "/configs/" + preset + ".yaml";
    const Config config = load_config(path, {});
    CHECK(dump_config(parse(dump_config(config))) == dump_config(config));
    const std::string text = read_file(path);
    for (const ConfigSection& section : config_schema()) {
      const size_t begin = text.find("\n" + section.name + ":\n");
      REQUIRE(begin != std::string::npos);
      const std::string lines = text.substr(begin + 1, text.find("\n\n", begin) - begin - 1) + "\n";
      for (const ConfigKey& key : section.keys) {
        INFO(key.path());
        CHECK(std::regex_search(lines, std::regex("\n  " + key.name + ": [^\n]+ # [^\n]+")));
      }
    }
  }
}

TEST_CASE("presets are the models that they name") {
  const auto load = [](const std::string& name, const std::vector<std::string>& overrides = {}) {
    return load_config(kSource + "/configs/" + name + ".yaml", overrides);
  };
  const Config big = load("1b-16gb");
  CHECK(big.model.parameter_count() == 976770816);
  CHECK(big.train.tokens_per_step == 65536);
  CHECK(big.optim.master == "split");
  CHECK(big.memory.recompute.empty());
  CHECK(big.train.micro_batch == 0);
  CHECK(load("1b-16gb", {"train.steps=200", "optim.lr=3e-4"}).train.steps == 200);
  CHECK(load("124m").model.parameter_count() == 109529856);
  CHECK(load("quickstart").model.parameter_count() < 2'000'000);
  CHECK(load("quickstart", {"train.steps=5"}).train.dtype == "fp32");
}
