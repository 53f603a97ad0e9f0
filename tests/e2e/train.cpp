// Training runs from start to end: resume, budgets, evaluation, samples, tokenizers.

#include <cmath>
#include <csignal>
#include <random>

#include "tests/e2e/workshop.h"
#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace {

namespace fs = std::filesystem;

bool close(double a, double b, double relative) { return std::abs(a - b) <= relative * std::abs(b); }

double last_loss(const fs::path& run) { return rows(run, "step").back().at("loss"); }

// Made once: 60 steps.
const Outcome& plain_run() {
  static const Outcome outcome = run_well(workshop().train(
      "plain", {"train.steps=60", "train.save_every=25", "train.eval_every=30", "train.sample_every=60",
                "train.sample_tokens=8", "train.sample_prompt=int"}));
  return outcome;
}

TEST_CASE("a run trains, evaluates, samples and leaves its files") {
  const Workshop& shop = workshop();
  const Outcome& outcome = plain_run();
  const fs::path folder = shop.path("plain");
  REQUIRE(rows(folder, "step").size() == 60);
  REQUIRE(rows(folder, "step").front().at("loss").get<double>() > 5.3);
  REQUIRE(last_loss(folder) < 4.0);
  REQUIRE(rows(folder, "eval").size() == 2);
  REQUIRE(rows(folder, "eval").back().at("loss").get<double>() < 4.5);
  REQUIRE(rows(folder, "sample").size() == 1);
  REQUIRE(rows(folder, "memory").size() >= 1);
  const auto memory = rows(folder, "memory").front().at("categories");
  for (const char* category : {"weights", "gradients", "optimizer"}) {
    REQUIRE(memory.at(category).at("predicted") == memory.at(category).at("measured"));
  }
  REQUIRE(memory.at("slab").at("predicted") <= memory.at("slab").at("measured"));
  REQUIRE(rows(folder, "start").front().at("recompute") == "2 x block");
  REQUIRE(stop_reason(folder) == "train.steps");
  for (const char* name : {"config.yaml", "log.txt", "lock", "tokenizer.byte", "checkpoints"}) {
    REQUIRE(fs::exists(folder / name));
  }
  REQUIRE(fs::exists(folder / "checkpoints/step-00000060/manifest.json"));
  REQUIRE(fs::exists(folder / "checkpoints/step-00000050/manifest.json"));
  REQUIRE_FALSE(fs::exists(folder / "checkpoints/step-00000025"));  // train.keep_last is 2
  REQUIRE(outcome.err.find("tok/s") != std::string::npos);

  SECTION("eval agrees with the run") {
    const Outcome eval = run_well({"eval", folder.string(), "--json", "--tokens", "256"});
    const auto row = nlohmann::json::parse(eval.out);
    REQUIRE(row.at("loss") == rows(folder, "eval").back().at("loss"));
    REQUIRE(row.at("tokens") == 256);
    REQUIRE(close(row.at("bits_per_byte"), row.at("loss").get<double>() / std::log(2.0), 1e-9));
    REQUIRE(run_well({"eval", folder.string(), "--data", shop.text("data")}).out.find("perplexity") !=
            std::string::npos);
  }
  SECTION("sample is text, and the same text for a seed") {
    const Words words = {"sample", folder.string(), "--prompt", "int", "--tokens", "40", "--seed", "3"};
    const std::string text = run_well(words).out;
    REQUIRE(text.starts_with("int"));
    REQUIRE(text == run_well(words).out);
  }
  SECTION("a second run into the folder is refused") {
    require_user_error(run(shop.train("plain", {})), {"already holds a run", "--resume auto", "--run"});
  }
}

TEST_CASE("kill -9 at any moment, then resume: the losses of an uninterrupted run") {
  const Workshop& shop = workshop();
  const Words settings = {"train.steps=40", "train.save_every=7", "optim.master=stochastic"};
  run_well(shop.train("whole", settings));
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  INFO("seed " << seed);
  {
    Program program(shop.train("killed", settings));
    REQUIRE(wait_for_step(shop.path("killed"), 1 + static_cast<int64_t>(random() % 30)));
    program.signal(SIGKILL);
    REQUIRE(program.wait().exit_code == -1);
  }
  run_well(shop.train("killed", settings, {"--resume", "auto"}));
  require_same_losses(shop.path("whole"), shop.path("killed"));
  REQUIRE(rows(shop.path("whole"), "eval").back().at("loss") ==
          rows(shop.path("killed"), "eval").back().at("loss"));
}

TEST_CASE("resume: from a step, longer, with another micro-batch, and without a checkpoint") {
  const Workshop& shop = workshop();
  const Words schedule = {"optim.schedule_steps=20", "train.save_every=5", "train.keep_last=10"};
  Words longer = schedule;
  longer.emplace_back("train.steps=20");
  run_well(shop.train("long", longer));
  run_well(shop.train("short", schedule));  // 12 steps of the same schedule
  run_well(shop.train("short", longer, {"--resume", "auto"}));
  require_same_losses(shop.path("long"), shop.path("short"));

  run_well(shop.train("short", longer, {"--resume", "10"}));
  require_same_losses(shop.path("long"), shop.path("short"));
  require_user_error(run(shop.train("short", longer, {"--resume", "11"})), {"step 11", "5, 10"});

  Words other = longer;
  other.emplace_back("train.micro_batch=8");
  run_well(shop.train("short", other, {"--resume", "15"}));
  REQUIRE(close(last_loss(shop.path("short")), last_loss(shop.path("long")), 1e-3));

  const Outcome fresh =
      run_well(shop.train("never", {"train.steps=2", "optim.warmup_steps=1"}, {"--resume", "auto"}));
  REQUIRE(fresh.err.find("starting afresh") != std::string::npos);
}

TEST_CASE("a run says whether it is deterministic and why, and its folder keeps what was asked for") {
  const Workshop& shop = workshop();
  const Words one = {"train.steps=1", "optim.warmup_steps=0", "train.eval_every=0"};
  for (const std::string asked : {"auto", "true", "false"}) {
    Words settings = one;
    settings.push_back("train.deterministic=" + asked);
    const std::string name = "deterministic-" + asked;
    const std::string err = run_well(shop.train(name, settings)).err;
    const bool automatic = asked == "auto";
    REQUIRE((err.find("deterministic (auto: it costs nothing here)") != std::string::npos) == automatic);
    const auto start = rows(shop.path(name), "start").back();
    REQUIRE(start.at("deterministic") == true);  // a CPU always is
    REQUIRE(start.at("determinism") == (automatic ? "auto: it costs nothing here" : ""));
    const std::string line = "deterministic: " + asked + "\n";
    REQUIRE(read_text(shop.path(name) / "config.yaml").find(line) != std::string::npos);
    REQUIRE(read_text(shop.path(name) / "checkpoints/step-00000001/config.yaml").find(line) !=
            std::string::npos);
    run_well({"eval", shop.text(name), "--data", shop.text("data")});
  }
  const Words more = {"train.steps=2", "optim.warmup_steps=0", "train.eval_every=0"};
  const auto outcome = run_well(shop.train("deterministic-true", more, {"--resume", "auto"}));
  INFO(outcome.err);
  REQUIRE(rows(shop.path("deterministic-true"), "start").back().at("determinism") ==
          "auto: as the checkpoint was");
}

TEST_CASE("token and time budgets end a run") {
  const Workshop& shop = workshop();
  run_well(shop.train("tokens", {"train.max_tokens=1024"}));
  REQUIRE(rows(shop.path("tokens"), "step").size() == 4);
  REQUIRE(stop_reason(shop.path("tokens")) == "train.max_tokens");
  run_well(shop.train("hours", {"train.max_hours=1e-9"}));
  REQUIRE(stop_reason(shop.path("hours")) == "train.max_hours");
}

TEST_CASE("a small model overfits one batch") {
  const Workshop& shop = workshop();
  const std::string bytes = real_text().substr(1000, 33);
  write_text(shop.path("one.txt"), bytes);
  run_well({"prepare", "--input", shop.text("one.txt"), "--tokenizer", "byte", "--out", shop.text("one")});
  run_well(shop.train("overfit", {"data.train=" + shop.text("one"), "data.val_fraction=0", "train.steps=150",
                                  "train.tokens_per_step=64", "train.micro_batch=2", "optim.lr=1e-2",
                                  "optim.weight_decay=0", "train.save_every=0"}));
  REQUIRE(last_loss(shop.path("overfit")) < 0.05);
}

TEST_CASE("document masks train, and raw shards without a tokenizer give token ids") {
  const Workshop& shop = workshop();
  std::string lines;
  const std::string source = real_text();
  for (size_t i = 0; i < 400; ++i) {
    const nlohmann::json line = {{"text", source.substr(i * 100, 10 + i % 50)}};
    lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  write_text(shop.path("documents.jsonl"), lines);
  run_well({"prepare", "--input", shop.text("documents.jsonl"), "--jsonl", "--tokenizer", "byte", "--out",
            shop.text("documents")});
  const Words settings = {"data.train=" + shop.text("documents"), "data.document_mask=true",
                          "train.steps=30"};
  run_well(shop.train("masked", settings));
  REQUIRE(last_loss(shop.path("masked")) < 5.0);
  const Words half = {"data.train=" + shop.text("documents"), "data.document_mask=true", "train.steps=13",
                      "optim.schedule_steps=30"};
  run_well(shop.train("masked-twice", half));
  run_well(shop.train("masked-twice", settings, {"--resume", "auto"}));
  require_same_losses(shop.path("masked"), shop.path("masked-twice"));

  std::string raw;
  for (int i = 0; i < 4000; ++i) raw += {static_cast<char>(i * i % 17), '\0'};
  write_text(shop.path("raw.bin"), raw);
  run_well(shop.train("raw", {"data.train=" + shop.text("raw.bin"), "model.vocab_size=17"}));
  const Outcome sample = run_well({"sample", shop.text("raw"), "--prompt", "1 4 9", "--tokens", "5"});
  REQUIRE(sample.err.find("token ids") != std::string::npos);
  REQUIRE(sample.out.starts_with("1 4 9 "));
}

TEST_CASE("from text to text with a SentencePiece tokenizer") {
  const Workshop& shop = workshop();
  run_well({"tokenizer", "train", "--input", shop.text("text.txt"), "--vocab", "512", "--out",
            shop.text("tok.model")});
  run_well({"prepare", "--input", shop.text("text.txt"), "--tokenizer", shop.text("tok.model"), "--out",
            shop.text("pieces")});
  run_well(shop.train("pieces-run", {"data.train=" + shop.text("pieces"), "model.vocab_size=512",
                                     "train.steps=3", "optim.warmup_steps=1"}));
  REQUIRE(rows(shop.path("pieces-run"), "step").size() == 3);
  const Outcome sample = run_well({"sample", shop.text("pieces-run"), "--prompt", "int ", "--tokens", "8"});
  REQUIRE(sample.out.starts_with("int "));
  REQUIRE(sample.out.size() > 5);
  REQUIRE(sample.err.find("token ids") == std::string::npos);
}

TEST_CASE("the loss is the cross-entropy alone, and the z-loss stands beside it") {
  const Workshop& shop = workshop();
  const Words settings = {"train.steps=2", "optim.warmup_steps=1", "train.eval_every=0"};
  run_well(shop.train("no-z", settings));
  REQUIRE_FALSE(rows(shop.path("no-z"), "step").front().contains("z_loss"));
  Words with = settings;
  with.emplace_back("train.z_loss=0.5");
  run_well(shop.train("z", with));
  const auto row = rows(shop.path("z"), "step").front();
  REQUIRE(close(row.at("loss"), rows(shop.path("no-z"), "step").front().at("loss"), 1e-6));
  const double lse = row.at("lse_mean");
  REQUIRE(row.at("z_loss").get<double>() >= 0.5 * lse * lse * (1 - 1e-6));
  REQUIRE(row.at("z_loss").get<double>() < 0.5 * lse * lse * 1.2);
}

}  // namespace
}  // namespace narrowgauge::test
