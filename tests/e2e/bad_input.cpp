// What a person may get wrong: each ends with one line that says so and exit code 2.
#include <sys/mount.h>
#include <unistd.h>

#include <functional>

#include "tests/e2e/workshop.h"
#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace {

namespace fs = std::filesystem;

Outcome train(const std::string& name, const Words& settings, const Words& more = {}) {
  return run(workshop().train(name, settings, more));
}

fs::path only_shard(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".ngt") return entry.path();
  }
  return {};
}

// A finished run of 5 steps, made once.
const std::string& finished_run() {
  static const std::string name = [] {
    const Outcome outcome = train("finished", {"train.steps=5"});
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return std::string("finished");
  }();
  return name;
}

// A copy of it whose checkpoint file has been treated.
std::string damaged_run(const std::string& name, const std::string& file,
                        const std::function<void(std::string&)>& treat) {
  const Workshop& shop = workshop();
  fs::copy(shop.path(finished_run()), shop.path(name), fs::copy_options::recursive);
  const fs::path path = shop.path(name) / "checkpoints/step-00000005" / file;
  std::string bytes = read_text(path);
  REQUIRE_FALSE(bytes.empty());
  treat(bytes);
  write_text(path, bytes);
  return name;
}

TEST_CASE("bad keys and values") {
  require_user_error(train("keys", {"train.step=5"}), {"train.step", "train.steps"});
  require_user_error(train("keys", {"train.steps=many"}), {"train.steps", "many"});
  require_user_error(train("keys", {"optim.lr=-1"}), {"optim.lr", "-1"});
  require_user_error(train("keys", {"model.heads=3"}), {"model.heads", "3", "32"});
  const Workshop& shop = workshop();
  write_text(shop.path("unknown.yaml"), "train:\n  steps: 5\n  sedd: 1\n");
  require_user_error(run({"train", shop.text("unknown.yaml"), "--run", shop.text("keys")}),
                     {"unknown.yaml", "3", "sedd", "seed"});
  require_user_error(run({"train", shop.text("absent.yaml"), "--run", shop.text("keys")}), {"absent.yaml"});
  require_user_error(run({"train", shop.config()}), {"--run"});
}

TEST_CASE("bad data") {
  const Workshop& shop = workshop();
  require_user_error(train("bad-data", {"data.train=" + shop.text("nowhere")}), {"nowhere"});
  write_text(shop.path("empty.bin"), "");
  require_user_error(train("bad-data", {"data.train=" + shop.text("empty.bin")}), {"empty.bin", "empty"});
  write_text(shop.path("few.bin"), std::string(40, '\0'));
  require_user_error(train("bad-data", {"data.train=" + shop.text("few.bin")}),
                     {"20 tokens", "data.context"});

  std::string raw(20000, '\1');  // every id is 257
  raw.replace(8000, 2, "\xFF\x0F");
  write_text(shop.path("beyond.bin"), raw);
  require_user_error(train("beyond", {"data.train=" + shop.text("beyond.bin"), "train.steps=100"}),
                     {"beyond.bin", "4095", "259"});
  require_user_error(train("bad-data", {"model.vocab_size=200"}), {"model.vocab_size", "200", "259"});

  fs::copy(shop.path("data"), shop.path("cut"), fs::copy_options::recursive);
  const fs::path shard = only_shard(shop.path("cut"));
  REQUIRE_FALSE(shard.empty());
  fs::resize_file(shard, fs::file_size(shard) - 100);
  require_user_error(train("bad-data", {"data.train=" + shop.text("cut")}), {shard.filename().string()});

  fs::copy(shop.path("data"), shop.path("flipped"), fs::copy_options::recursive);
  const fs::path flipped = only_shard(shop.path("flipped"));
  std::string bytes = read_text(flipped);
  bytes[bytes.size() / 2] ^= 1;
  write_text(flipped, bytes);
  require_user_error(train("refused", {"data.train=" + shop.text("flipped")}),
                     {flipped.filename().string(), "corrupted", "checksum"});
  require_user_error(train("refused", {"data.val=" + shop.text("flipped")}),
                     {flipped.filename().string(), "corrupted", "checksum"});
  REQUIRE_FALSE(fs::exists(shop.path("bad-data/config.yaml")));
  REQUIRE_FALSE(fs::exists(shop.path("refused")));
  REQUIRE_FALSE(fs::exists(shop.path("beyond")));
}

TEST_CASE("bad words of tokenizer and prepare") {
  const Workshop& shop = workshop();
  require_user_error(run({"tokenizer", "foo"}), {"\"foo\"", "tokenizer train"});
  require_user_error(run({"tokenizer"}), {"no action", "tokenizer train"});
  fs::create_directory(shop.path("no-text"));
  require_user_error(run({"prepare", "--input", shop.text("no-text"), "--out", shop.text("x")}),
                     {"no-text", "no file in this folder"});
  require_user_error(
      run({"prepare", "--input", shop.text("text.txt"), "--field", "body", "--out", shop.text("x")}),
      {"--field", "--jsonl"});
  require_user_error(run({"prepare", "--verify", shop.text("data"), "--out", shop.text("x")}),
                     {"--verify", "--out"});
  REQUIRE_FALSE(fs::exists(shop.path("x")));
}

TEST_CASE("bad run folders") {
  const Workshop& shop = workshop();
  write_text(shop.path("file"), "in the way");
  require_user_error(train("file", {}), {"file"});
  require_user_error(train("file/below", {}), {"below"});
  require_user_error(run({"train", shop.config(), "--run", "/proc/narrowgauge"}), {"/proc/narrowgauge"});
  require_user_error(run({"eval", shop.text("nowhere")}), {"nowhere", "no such run folder"});
  require_user_error(run({"sample", shop.text("nowhere")}), {"nowhere", "no such run folder"});
  require_user_error(run({"export", shop.text("nowhere"), "--out", shop.text("x")}),
                     {"nowhere", "no such run folder"});
  require_user_error(run({"eval", shop.text("data")}), {"data", "no complete checkpoint"});
}

TEST_CASE("bad benches") {
  const Workshop& shop = workshop();
  require_user_error(run({"bench", "kernel"}), {"kernel", "kernels"});
  require_user_error(run({"bench", "step", "--set", "train.micro_batch=3"}), {"train.micro_batch", "16"});
  require_user_error(run({"bench", "render", shop.text("no-results")}), {"no-results", "--json"});
  fs::create_directory(shop.path("results"));
  write_text(shop.path("results/a.json"), "{}");
  require_user_error(run({"bench", "render", shop.text("results")}), {"a.json"});
}

TEST_CASE("no GPU") {
  if (fs::exists("/dev/nvidia0")) {
    WARN("a GPU is here: not tested");
    return;
  }
  require_user_error(train("gpu", {"train.device=cuda"}), {"train.device", "cuda", "cpu"});
  const std::string finished = workshop().text(finished_run());
  require_user_error(run({"eval", finished, "--device", "cuda"}), {"--device is cuda", "--device cpu"});
  require_user_error(run({"sample", finished, "--device", "cuda"}), {"--device is cuda", "--device cpu"});
  require_user_error(run({"sample", finished, "--device", "gpu"}),
                     {"--device", "\"gpu\"", "auto, cuda or cpu"});
  require_user_error(run({"bench", "kernels"}), {"bench", "CUDA device"});
}

TEST_CASE("full disk") {
  const Workshop& shop = workshop();
  const Outcome limited = run(shop.train("full", {"train.steps=5"}), 60000);
  require_user_error(limited, {"safetensors"});
  REQUIRE(rows(shop.path("full"), "checkpoint").empty());
  const Outcome resumed = train("full", {"train.steps=5"}, {"--resume", "auto"});
  REQUIRE(resumed.exit_code == 0);  // nothing half-written is in the way

  fs::create_directories(shop.path("small"));
  if (::geteuid() != 0 || ::mount("tmpfs", shop.path("small").c_str(), "tmpfs", 0, "size=120k") != 0) {
    WARN("mounting a small tmpfs needs root: not tested");
    return;
  }
  const Outcome outcome = train("small/run", {"train.steps=5"});
  ::umount2(shop.path("small").c_str(), MNT_DETACH);
  require_user_error(outcome, {"small/run"});
}

TEST_CASE("bad checkpoints") {
  const std::string corrupted = damaged_run("corrupted", "weights.safetensors",
                                            [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; });
  require_user_error(train(corrupted, {"train.steps=7"}, {"--resume", "auto"}), {"weights.safetensors"});
  require_user_error(run({"eval", workshop().text(corrupted)}), {"weights.safetensors"});
  const std::string truncated = damaged_run("truncated", "optimizer.safetensors",
                                            [](std::string& bytes) { bytes.resize(bytes.size() - 9); });
  require_user_error(train(truncated, {"train.steps=7"}, {"--resume", "5"}),
                     {"truncated", "no complete checkpoint"});
}

TEST_CASE("another model, optimizer or data on resume") {
  const Workshop& shop = workshop();
  const std::string name = "changed";
  fs::copy(shop.path(finished_run()), shop.path(name), fs::copy_options::recursive);
  const auto resume = [&](const std::string& setting, const Words& more = {}) {
    Words words = {"--resume", "auto"};
    words.insert(words.end(), more.begin(), more.end());
    return train(name, {"train.steps=6", setting}, words);
  };
  require_user_error(resume("model.layers=3"), {"model.layers was 2, now 3"});
  require_user_error(resume("optim.state=fp32"), {"optim.state"});
  require_user_error(resume("train.seed=7"), {"train.seed", "--allow-data-change"});
  write_text(shop.path("other.txt"), real_text().substr(70000, 20000));
  REQUIRE(
      run({"prepare", "--input", shop.text("other.txt"), "--tokenizer", "byte", "--out", shop.text("other")})
          .exit_code == 0);
  const std::string other = "data.train=" + shop.text("other");
  require_user_error(resume(other), {"data", "--allow-data-change"});
  REQUIRE(resume(other, {"--allow-data-change"}).exit_code == 0);
}

TEST_CASE("bad folders to start from") {
  const Workshop& shop = workshop();
  write_text(shop.path("gpt2/config.json"),
             R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"})");
  require_user_error(train("import", {"model.init_from=" + shop.text("gpt2")}),
                     {"GPT2LMHeadModel", "LlamaForCausalLM"});
  require_user_error(train("import", {"model.init_from=" + shop.text("nowhere")}), {"nowhere"});
}

}  // namespace
}  // namespace narrowgauge::test
