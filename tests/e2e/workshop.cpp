#include "tests/e2e/workshop.h"

#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace {

constexpr const char* kTinyConfig = R"(model:
  vocab_size: 259
  layers: 2
  hidden_size: 32
  heads: 2
  ffn_size: 64
data:
  train: DATA
  val_fraction: 0.05
  context: 32
optim:
  lr: 3e-3
  warmup_steps: 3
  state: 8bit
  min_8bit_size: 1024
train:
  steps: 12
  micro_batch: 4
  tokens_per_step: 256
  device: cpu
  dtype: fp32
  save_every: 5
  eval_every: 6
  eval_tokens: 256
log:
  every: 5
)";

}  // namespace

Workshop::Workshop() {
  write_text(path("text.txt"), real_text().substr(0, 60000));
  const Outcome prepared =
      run({"prepare", "--input", text("text.txt"), "--tokenizer", "byte", "--out", text("data")});
  INFO(prepared.err);
  REQUIRE(prepared.exit_code == 0);
  std::string config = kTinyConfig;
  config.replace(config.find("DATA"), 4, text("data"));
  write_text(path("tiny.yaml"), config);
}

Words Workshop::train(const std::string& name, const Words& settings, const Words& more) const {
  Words words = {"train", config(), "--run", text(name)};
  for (const std::string& setting : settings) {
    words.emplace_back("--set");
    words.push_back(setting);
  }
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Workshop& workshop() {
  static const Workshop instance;
  return instance;
}

}  // namespace narrowgauge::test
