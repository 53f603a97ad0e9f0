// What a bad config is told: one line with place, key, value and rule.
#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <string>

#include "lib/base/error.h"
#include "lib/config/config.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"

using namespace narrowgauge;

namespace {

std::string problem(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(yaml, "test.yaml", overrides);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string set_problem(const std::string& text) { return problem("", {text}); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("unknown keys name the nearest known one") {
  CHECK(problem("train:\n  seed: 1\n  step: 5\n") ==
        "test.yaml:3: unknown key train.step (did you mean \"train.steps\"?); narrowgauge config --explain "
        "lists all "
        "keys");
  CHECK(contains(problem("train:\n  lr: 1\n"), "did you mean \"optim.lr\"?"));  // in another section
  CHECK(contains(problem("train:\n  bananas: 1\n"), "unknown key train.bananas; narrowgauge"));
  CHECK(contains(problem("<<: {a: 1}\n"), "unknown section \"<<\""));
}

TEST_CASE("sections are checked") {
  CHECK(problem("\ntrian:\n  steps: 5\n") ==
        "test.yaml:2: unknown section \"trian\" (did you mean \"train\"?); the sections are model, data, "
        "optim, train, "
        "memory, log");
  CHECK(contains(problem("train: 5\n"), "test.yaml:1: train is a section"));
  CHECK(contains(problem("train: [1]\n"), "test.yaml:1: train is a section"));
  CHECK(problem("train.steps: 5\n") == "test.yaml:1: train.steps must stand as \"steps:\" below \"train:\"");
  CHECK(problem("seed: 5\n") == "test.yaml:1: seed must stand as \"seed:\" below \"train:\"");
  CHECK(contains(problem("- a\n- b\n"), "expected sections"));
  CHECK(contains(problem("words\n"), "expected sections"));
}

TEST_CASE("what is there twice is refused") {
  CHECK(problem("train:\n  seed: 1\n  seed: 1\n") == "test.yaml:3: train.seed is there twice: remove one");
  CHECK(problem("log: {every: 1}\nlog: {every: 2}\n") ==
        "test.yaml:2: section log is there twice: remove one");
}

TEST_CASE("malformed YAML names the line") {
  CHECK(contains(problem("train:\n  steps: [1\n"), "malformed YAML"));
  CHECK(contains(problem("train:\n\tsteps: 1\n"), "test.yaml:2: malformed YAML: a tab indents the line"));
  for (const char* open : {"\"abc", "\"abc\n\n", "'abc \n", "\"abc\nval: x\n"}) {
    INFO(open);
    CHECK(contains(problem(fmt::format("data:\n  train: {}", open)), "a quote stays open"));
  }
  CHECK(contains(problem("train:\n  steps: 1\n bad\n"), "malformed YAML"));
  CHECK(contains(problem("a: *nowhere\n"), "malformed YAML"));
  CHECK(contains(problem(std::string("train: {}\n\0", 11)), "test.yaml:2: a zero byte"));
  CHECK(contains(problem("train: " + std::string(100000, '[')), "malformed YAML"));
  CHECK(contains(problem("memory: {recompute: &a [*a]}\n"), "a list is no recompute level"));
  CHECK(contains(problem("train: {}\n---\nlog: {}\n"), "2 YAML documents"));
  CHECK(contains(problem("? [a, b]\n: c\n"), "test.yaml:1: a key must be a word"));
}

TEST_CASE("missing files") {
  try {
    load_config("/no/such.yaml", {});
    FAIL("nothing was thrown");
  } catch (const UserError& error) {
    CHECK(std::string(error.what()) ==
          "cannot read /no/such.yaml: No such file or directory (check the path)");
  }
  CHECK_THROWS_AS(load_config("/", {}), UserError);
}

TEST_CASE("a file that sets nothing starts nothing") {
  const test::TemporaryFolder folder;
  const auto load = [&](const std::string& yaml) -> std::string {
    std::ofstream(folder / "a.yaml") << yaml;
    try {
      load_config(folder / "a.yaml", {"train.steps=500"});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  for (const char* empty : {"", "\n\n", "# a comment\n", "---\n", "{}\n", "train:\n", "train: {}\nlog:\n"}) {
    INFO(empty);
    CHECK(load(empty) ==
          fmt::format("{}: no key is set in it, and a config must say what to train; start from a "
                      "copy of configs/quickstart.yaml",
                      (folder / "a.yaml").string()));
  }
  CHECK(load("log:\n  every: 5\n").empty());
}

TEST_CASE("integers are integers") {
  CHECK(problem("train:\n  steps: many\n") ==
        "test.yaml:2: train.steps: \"many\" is no integer (expected digits only, like 100)");
  for (const char* bad :
       {"1.0", "1e3", "0x10", "1_000", "\"100\"", "true", "", "~", "[1]", "{a: 1}", ".nan"}) {
    INFO(bad);
    CHECK(contains(problem(fmt::format("train:\n  steps: {}\n", bad)), "test.yaml:2: train.steps: "));
    CHECK(contains(problem(fmt::format("train:\n  steps: {}\n", bad)), "is no integer"));
  }
  CHECK(contains(problem("train: {steps: 99999999999999999999}\n"), "does not fit into 64 bits"));
  CHECK(contains(problem("train: {steps: 0}\n"), "train.steps: 0 is out of range (allowed: 1 or more)"));
  CHECK(contains(problem("model: {layers: 2000}\n"), "2000 is out of range (allowed: from 1 to 1024)"));
  CHECK(contains(problem("train: {micro_batch: 0}\n"), "0 is out of range (allowed: auto, or from 1"));
  CHECK(contains(problem("train: {micro_batch: some}\n"), "\"some\" is no integer"));
}

TEST_CASE("numbers are finite numbers in their range") {
  for (const char* bad : {"fast", "1,5", "\"0.1\"", "1e", "--1", "+-1", "", "[1]", "true"}) {
    INFO(bad);
    CHECK(contains(problem(fmt::format("optim:\n  lr: {}\n", bad)), "test.yaml:2: optim.lr: "));
    CHECK(contains(problem(fmt::format("optim:\n  lr: {}\n", bad)), "is no number"));
  }
  for (const char* bad : {".nan", ".inf", "-.INF", "nan", "inf", "-infinity"}) {
    INFO(bad);
    CHECK(contains(problem(fmt::format("optim: {{lr: {}}}\n", bad)), "is not finite"));
  }
  CHECK(contains(problem("optim: {lr: 1e999}\n"), "too large or too small"));
  CHECK(contains(problem("optim: {lr: -1}\n"), "-1 is out of range (allowed: 0 or more)"));
  CHECK(contains(problem("optim: {beta1: 1}\n"), "1 is out of range (allowed: from 0 to below 1)"));
  CHECK(contains(problem("optim: {beta2: 1.5}\n"), "out of range"));
  CHECK(contains(problem("optim: {eps: 0}\n"), "0 is out of range (allowed: above 0)"));
  CHECK(contains(problem("optim: {min_lr: 1.1}\n"), "1.1 is out of range (allowed: from 0 to 1)"));
  CHECK(contains(problem("optim: {decay_fraction: 0}\n"), "0 is out of range (allowed: above 0, up to 1)"));
  CHECK(contains(problem("data: {val_fraction: 0.6}\n"), "0.6 is out of range (allowed: from 0 to 0.5)"));
}

TEST_CASE("booleans, words and text") {
  CHECK(problem("model:\n  qk_norm: yes\n") ==
        "test.yaml:2: model.qk_norm: \"yes\" is neither true nor false");
  CHECK(contains(problem("model: {qk_norm: \"true\"}\n"), "neither true nor false"));
  CHECK(contains(problem("optim: {schedule: cosin}\n"),
                 "\"cosin\" is not one of cosine, linear, wsd, constant (did you mean \"cosine\"?)"));
  CHECK(contains(problem("train: {deterministic: yes}\n"), "\"yes\" is not one of auto, true, false"));
  CHECK(contains(problem("train: {device: [cpu]}\n"), "a list is not one of auto, cuda, cpu"));
  CHECK(contains(problem("data:\n  val:\n"),
                 "test.yaml:2: data.val: nothing is no text (an empty one is written"));
  CHECK(contains(problem("data: {train: [a, b]}\n"), "a list is no text"));
  CHECK(contains(problem("data: {train: {a: b}}\n"), "a section is no text"));
  CHECK(contains(problem("memory: {grad_dtype: fp16}\n"), "\"fp16\" is not one of bf16, fp32"));
}

TEST_CASE("bytes and recompute levels") {
  CHECK(contains(problem("memory: {budget: much}\n"), "\"much\" is no amount of memory"));
  CHECK(contains(problem("memory: {budget: 0}\n"), "out of range"));
  CHECK(contains(problem("memory: {attention_workspace: auto}\n"), "auto"));
  CHECK(contains(problem("memory: {budget: -1GiB}\n"), "no amount of memory"));
  CHECK(contains(problem("memory: {budget: [1]}\n"), "a list is no amount of memory"));
  CHECK(contains(problem("memory: {recompute: blok}\n"),
                 "\"blok\" is no recompute level (did you mean \"block\"?) (allowed: auto, one of none,"));
  CHECK(contains(problem("memory: {recompute: []}\n"), "the list is empty"));
  CHECK(contains(problem("memory: {recompute: [none, auto]}\n"), "\"auto\" is no recompute level"));
  CHECK(contains(problem("memory: {recompute: [[none]]}\n"), "a list is no recompute level"));
  CHECK(contains(problem("memory: {recompute: {a: b}}\n"), "a section is no recompute level"));
  CHECK(contains(problem("memory:\n  recompute:\n"), "nothing is no recompute level"));
}

TEST_CASE("--set has the same errors") {
  CHECK(
      contains(set_problem("train.step=5"), "--set: unknown key train.step (did you mean \"train.steps\"?)"));
  CHECK(contains(set_problem("trian.steps=5"), "did you mean \"train.steps\"?"));
  CHECK(set_problem("train.steps=x") ==
        "--set: train.steps: \"x\" is no integer (expected digits only, like 100)");
  CHECK(contains(set_problem("train.steps="), "\"\" is no integer"));
  CHECK(contains(set_problem("train.steps=[5]"), "a list is no integer"));
  CHECK(contains(set_problem("memory.recompute=[none"),
                 "--set: memory.recompute: \"[none\" is no whole list: write it like"));
  CHECK(contains(set_problem("memory.recompute=[block,"), "\"[block,\" is no whole list"));
  for (const char* bad : {"", "train.steps", "steps=5", "=5", ".steps=5", "a=b.c"}) {
    INFO(bad);
    CHECK(contains(set_problem(bad), "must have the form SECTION.KEY=VALUE"));
  }
}

TEST_CASE("rules that join keys") {
  const auto broken = [](const std::vector<std::string>& overrides, const std::string& rule) {
    INFO(rule);
    const std::string message = problem("", overrides);
    INFO(message);
    return message.starts_with("test.yaml: ") && contains(message, rule) && !contains(message, "; ");
  };
  CHECK(broken({"model.heads=15"},
               "model.heads (15) must divide model.hidden_size (1792), or set model.head_dim"));
  CHECK(problem("", {"model.heads=15", "model.head_dim=64"}).empty());
  CHECK(broken({"model.kv_heads=3"}, "model.kv_heads (3) must divide model.heads (16)"));
  CHECK(broken({"model.kv_heads=32"}, "must divide model.heads"));
  CHECK(broken({"model.head_dim=7"}, "must be even for rotary positions"));
  CHECK(broken({"model.head_dim=12"}, "the head size (12"));
  CHECK(broken({"model.head_dim=264"}, "at most 256 with train.dtype bf16"));
  CHECK(problem("", {"model.head_dim=12", "train.dtype=fp32"}).empty());
  CHECK(broken({"model.hidden_size=1796", "model.head_dim=64"},
               "model.hidden_size (1796) must be a multiple of 8"));
  CHECK(broken({"model.ffn_size=100"}, "model.ffn_size (100) must be a multiple of 8 with train.dtype bf16"));
  CHECK(broken({"train.tokens_per_step=5000"},
               "train.tokens_per_step (5000) must be a multiple of data.context"));
  CHECK(broken({"train.micro_batch=3"}, "train.micro_batch (3) must divide the 16 sequences of a step"));
  CHECK(broken({"train.steps=100"},
               "optim.warmup_steps (100) must be below the schedule's length (100: train.steps)"));
  CHECK(broken({"optim.schedule_steps=50"}, "(50: optim.schedule_steps)"));
  CHECK(problem("", {"train.steps=50", "optim.schedule_steps=1000"}).empty());
  CHECK(broken({"optim.master=split", "train.dtype=fp32"}, "fp32 weights are exact and need no master"));
  CHECK(broken({"optim.master=fp32", "train.dtype=fp32"}, "optim.master fp32 needs train.dtype bf16"));
  CHECK(
      broken({"train.attention=flash", "train.dtype=fp32"}, "train.attention flash needs train.dtype bf16"));
  CHECK(
      broken({"memory.recompute=[none, block]"}, "memory.recompute lists 2 levels, but model.layers is 24"));
  CHECK(broken({"train.keep_every=750"},
               "train.keep_every (750) must be a multiple of train.save_every (500)"));
  CHECK(broken({"train.keep_every=5", "train.save_every=0"}, "must be a multiple of train.save_every (0)"));
  CHECK(
      broken({"data.end_of_document=32000"}, "data.end_of_document (32000) must be below model.vocab_size"));
}

TEST_CASE("all broken rules come at once, in one line") {
  const std::string message = problem(
      "", {"model.heads=15", "train.tokens_per_step=5000", "train.steps=10", "memory.recompute=[none, ffn]"});
  CHECK(message ==
        "test.yaml: model.heads (15) must divide model.hidden_size (1792), or set model.head_dim; "
        "train.tokens_per_step (5000) must be a multiple of data.context (4096); "
        "optim.warmup_steps (100) must be below the schedule's length (10: train.steps); "
        "memory.recompute lists 2 levels, but model.layers is 24: name one level, or one a layer");
}
