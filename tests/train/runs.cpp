#include "tests/train/runs.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "lib/train/trainer.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace fs = std::filesystem;

std::string write_corpus(const fs::path& folder) {
  std::string shard;
  for (const char byte : real_text()) shard += {byte, '\0'};
  write_text(folder / "text.bin", shard);
  return (folder / "text.bin").string();
}

Config byte_config(const std::string& corpus, const std::string& device, const std::string& dtype,
                   int64_t layers, int64_t hidden, int64_t context) {
  Config config;
  config.model.vocab_size = 256;
  config.model.layers = layers;
  config.model.hidden_size = hidden;
  config.model.heads = hidden / 32;
  config.model.ffn_size = hidden * 8 / 3 / 32 * 32;
  config.data.train = corpus;
  config.data.val_fraction = 0;
  config.data.context = context;
  config.optim.lr = 2e-3;
  config.optim.warmup_steps = 5;
  config.train.device = device;
  config.train.dtype = dtype;
  config.train.deterministic = "true";
  config.train.tokens_per_step = 16 * context;
  config.train.micro_batch = 16;
  config.train.save_every = 0;
  config.memory.recompute = {RecomputeLevel::none};
  config.log.every = 100;
  config.log.progress = "plain";
  return config;
}

fs::path kernel_cache() {
  static const TemporaryFolder folder;
  ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  return folder / "narrowgauge/choices.json";
}

void train_run(const Config& config, const fs::path& run, const std::string& resume) {
  kernel_cache();
  train::train({.config = config, .run = run, .resume = resume});
}

double mean_loss(const fs::path& run, size_t count) {
  const auto steps = rows(run, "step");
  REQUIRE(steps.size() >= count);
  double sum = 0;
  for (size_t i = steps.size() - count; i < steps.size(); ++i) sum += steps[i].at("loss").get<double>();
  return sum / static_cast<double>(count);
}

double eight_bit_share(const Config& config, const fs::path& run, int64_t step) {
  const std::string file = read_text(run / fmt::format("checkpoints/step-{:08}/optimizer.safetensors", step));
  REQUIRE(file.size() > 8);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  const auto codes = header.at("m.codes").at("shape").at(0).get<double>();
  return codes / static_cast<double>(config.model.parameter_count());
}

void require_8bit_tracks_fp32(Config config, const std::vector<int64_t>& seeds) {
  config.train.steps = 1000;
  config.optim.lr = 1e-3;
  config.optim.warmup_steps = 50;
  double small_sum = 0;
  double full_sum = 0;
  for (const int64_t seed : seeds) {
    const TemporaryFolder folder;
    config.train.seed = seed;
    config.optim.state = "8bit";
    train_run(config, folder / "8bit");
    REQUIRE(eight_bit_share(config, folder / "8bit", 1000) >= 0.8);
    config.optim.state = "fp32";
    train_run(config, folder / "fp32");
    const double small = mean_loss(folder / "8bit", 100);
    const double full = mean_loss(folder / "fp32", 100);
    WARN(fmt::format(
        "seed {}: mean loss of the last 100 steps {:.4f} with 8-bit states, {:.4f} with fp32: {:+.2f} %",
        seed, small, full, 100 * (small / full - 1)));
    REQUIRE(rows(folder / "8bit", "step").front().at("loss").get<double>() > full + 1);  // it learns
    small_sum += small;
    full_sum += full;
  }
  REQUIRE(std::abs(small_sum / full_sum - 1) < 0.01);
}

}  // namespace narrowgauge::test
