#include "lib/train/checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <csignal>
#include <limits>
#include <random>
#include <thread>

#include "cuda/adamw_math.h"
#include "lib/base/checksum.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/io/hugging_face.h"
#include "lib/model/parameters.h"
#include "lib/train/checkpoint_export.h"
#include "lib/train/checkpoint_identity.h"
#include "lib/train/setup.h"
#include "tests/base/child.h"
#include "tests/base/temporary_folder.h"
#include "tests/io/files.h"
#include "tests/support/catch.h"

using narrowgauge::Config;
using narrowgauge::UserError;
using narrowgauge::io::NamedTensor;
using narrowgauge::test::lacks;
using narrowgauge::test::read_bytes;
using narrowgauge::test::refusal;
using narrowgauge::test::TemporaryFolder;
using narrowgauge::test::write_bytes;
using narrowgauge::train::CheckpointState;
using narrowgauge::train::CheckpointStore;
using narrowgauge::train::require_same_run;
using narrowgauge::train::run_identity;
using narrowgauge::train::RunIdentity;
using Steps = std::vector<int64_t>;

namespace {

namespace fs = std::filesystem;

// A checkpoint whose tensors tell the step.
CheckpointState make_state(int64_t step, int64_t elements = 1000) {
  CheckpointState state;
  state.step = step;
  state.tokens = step * 4096;
  state.sequences = step * 4;
  state.config.data.train = "data";
  state.identity = run_identity(state.config, 12, 34);
  const auto value = static_cast<double>(step);
  state.weights = {{"a.weight", at::full({elements / 10, 10}, value)},
                   {"b.weight", at::full({7}, value).to(at::kBFloat16)}};
  state.optimizer = {{"m.codes", at::full({elements}, step % 200, at::kByte)},
                     {"m.scales", at::full({4}, value)}};
  return state;
}

std::vector<NamedTensor> zeros_like(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> out;
  for (const auto& [name, tensor] : tensors)
    out.emplace_back(name, at::zeros(tensor.sizes(), tensor.options()));
  return out;
}

void check_equal(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i].second, b[i].second));
}

// Reads all of a checkpoint and compares it with make_state.
void check_loads(const CheckpointStore& store, int64_t step, int64_t elements = 1000) {
  const CheckpointState expected = make_state(step, elements);
  CHECK(store.read_state(step).tokens == expected.tokens);
  const auto weights = zeros_like(expected.weights);
  const auto optimizer = zeros_like(expected.optimizer);
  store.load_tensors(step, weights, optimizer);
  check_equal(weights, expected.weights);
  check_equal(optimizer, expected.optimizer);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

// Runs `body` in a child, which must end with 0 by itself.
void check_in_child(const std::function<bool()>& body) {
  const auto child = narrowgauge::test::in_child([&] {
    narrowgauge::ignore_file_signals();
    return body() ? 0 : 1;
  });
  INFO(child.output);
  CHECK(child.exit_code == 0);
}

}  // namespace

TEST_CASE("A checkpoint comes back bit for bit") {
  const TemporaryFolder run;
  const CheckpointStore store(run.path());
  CheckpointState state = make_state(500);
  state.config.optim.lr = 0.1 + 0.2;
  state.config.model.layers = 3;
  state.choices = "{}\n";
  auto& step = state.step_state;
  step.input = {.learning_rate = 1e-38f, .inverse_tokens = 1.0f / 3, .seed = UINT64_MAX, .step = 499};
  step.adam_step = 498;
  step.skipped_total = 1;
  step.grad_norm = std::bit_cast<float>(0x7fc01234u);
  step.clip_factor = std::numeric_limits<float>::infinity();
  step.bias_correction1 = -0.0f;
  step.skip = 1;
  CheckpointStore(run.path()).save(state, 2, 0);
  CHECK(store.folder(500).filename() == "step-00000500");
  CHECK(store.newest() == 500);
  const CheckpointState back = store.read_state(500);
  CHECK(back.step == 500);
  CHECK(back.tokens == state.tokens);
  CHECK(back.sequences == state.sequences);
  CHECK(back.choices == state.choices);
  CHECK(back.step_state.input.seed == UINT64_MAX);
  CHECK(back.step_state.input.step == 499);
  CHECK(back.step_state.adam_step == 498);
  CHECK(back.step_state.skipped_total == 1);
  CHECK(back.step_state.skip == 1);
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  CHECK(bits(back.step_state.input.learning_rate) == bits(1e-38f));
  CHECK(bits(back.step_state.input.inverse_tokens) == bits(1.0f / 3));
  CHECK(bits(back.step_state.grad_norm) == 0x7fc01234u);
  CHECK(bits(back.step_state.clip_factor) == bits(step.clip_factor));
  CHECK(bits(back.step_state.bias_correction1) == bits(-0.0f));
  CHECK(narrowgauge::dump_config(back.config) == narrowgauge::dump_config(state.config));
  require_same_run(back.identity, state.identity, false);
  check_loads(store, 500);
  const auto weights = zeros_like(state.weights);
  store.load_tensors(500, weights, {});
  check_equal(weights, state.weights);
}

TEST_CASE("Pruning keeps the newest and the multiples") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  CHECK(store.complete().empty());
  CHECK(!store.newest());
  for (int64_t step = 10; step <= 60; step += 10) store.save(make_state(step), 2, 30);
  CHECK(store.complete() == Steps{30, 50, 60});
  CHECK(names_in(run / "checkpoints").size() == 3);
  store.save(make_state(70), 0, 0);  // the newest always stays
  CHECK(store.complete() == Steps{70});
}

TEST_CASE("Saving an earlier or the same step replaces what lies ahead") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  for (const int64_t step : {10, 20, 30}) store.save(make_state(step), 5, 0);
  CheckpointState changed = make_state(20);
  changed.sequences = 7;
  store.save(changed, 5, 0);
  CHECK(store.complete() == Steps{10, 20});
  CHECK(store.read_state(20).sequences == 7);
  CHECK(names_in(run / "checkpoints").size() == 2);
}

TEST_CASE("Incomplete folders are no checkpoints and stale ones go") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  store.save(make_state(10), 5, 0);
  store.save(make_state(20), 5, 0);
  fs::remove(store.folder(20) / "manifest.json");
  fs::create_directories(run / "checkpoints" / "step-00000030");
  fs::create_directories(run / "checkpoints" / ".partial-step-00000040-1");
  write_bytes(run / "checkpoints" / "step-x", "");
  CHECK(store.complete() == Steps{10});
  CHECK(lacks(refusal([&] { static_cast<void>(store.read_state(20)); }), {"manifest.json", "step 10"}) == "");
  store.save(make_state(50), 5, 0);
  CHECK(store.complete() == Steps{10, 50});
  CHECK(!fs::exists(run / "checkpoints" / ".partial-step-00000040-1"));
}

TEST_CASE("Damage is found and named, with the checkpoint to use instead") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  store.save(make_state(10), 5, 0);
  store.save(make_state(20), 5, 0);
  const auto read = [&](int64_t step) { return refusal([&] { static_cast<void>(store.read_state(step)); }); };
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "state.json", "config.yaml"}) {
    INFO(name);
    const fs::path path = store.folder(20) / name;
    const std::string whole = read_bytes(path);
    std::string flipped = whole;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 4);
    write_bytes(path, flipped);
    CHECK(lacks(read(20), {path.string(), "checksum", "older checkpoint of step 10"}) == "");
    CHECK(store.newest() == 20);
    write_bytes(path, whole.substr(0, whole.size() - 1));
    CHECK(lacks(read(20), {path.string(), "bytes", "step 10"}) == "");
    CHECK(store.newest() == 10);
    fs::remove(path);
    CHECK(lacks(read(20), {path.string(), "missing", "step 10"}) == "");
    CHECK(store.newest() == 10);
    write_bytes(path, whole);
    CHECK(read(20) == "accepted");
  }
  const fs::path manifest = store.folder(20) / "manifest.json";
  for (const char* text :
       {"", "{", "[]", "{\"files\":{}}", "{\"files\":{\"../x\":{\"bytes\":1,\"xxh3_64\":\"0\"}}}",
        "{\"files\":{\"x\":{\"bytes\":1,\"xxh3_64\":\"zz\"}}}", "{\"files\":{\"x\":{\"bytes\":-1}}}"}) {
    write_bytes(manifest, text);
    CHECK(lacks(read(20), {"manifest.json", "step 10"}) == "");
    CHECK(store.newest() == 10);
  }
  CHECK(lacks(read(77), {"step-00000077", "step 10"}) == "");
  fs::remove(store.folder(10) / "state.json");
  CHECK(lacks(read(20), {"no older complete checkpoint"}) == "");
}

TEST_CASE("A newer format and malformed numbers are refused") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  const auto with_state = [&](const std::string& from, const std::string& to) {
    CheckpointStore(run.path()).save(make_state(10), 1, 0);
    const fs::path path = store.folder(10) / "state.json";
    std::string text = read_bytes(path);
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    write_bytes(path, text);
    // Only the manifest knows what the file should be.
    std::string manifest = read_bytes(store.folder(10) / "manifest.json");
    const size_t entry = manifest.find("state.json");
    const auto set = [&](const std::string& key, const std::string& value) {
      const size_t begin = manifest.find(key, entry) + key.size();
      manifest.replace(begin, manifest.find_first_of(",\n", begin) - begin, value);
    };
    set("\"bytes\": ", std::to_string(text.size()));
    set("\"xxh3_64\": ", "\"" + narrowgauge::checksum_hex(narrowgauge::checksum(text)) + "\"");
    write_bytes(store.folder(10) / "manifest.json", manifest);
    return refusal([&] { static_cast<void>(store.read_state(10)); });
  };
  CHECK(with_state("\"program\"", "\"program\"") == "accepted");
  CHECK(lacks(with_state("\"format\": 1", "\"format\": 2"),
              {"state.json", "format 2", "update narrowgauge"}) == "");
  CHECK(lacks(with_state("\"tokens\": 40960", "\"tokens\": \"x\""), {"state.json", "damaged"}) == "");
  CHECK(lacks(with_state("\"tokens\"", "\"t\""), {"state.json", "damaged"}) == "");
  CHECK(lacks(with_state("\"3f800000\"", "\"3f80000g\""), {"state.json", "damaged"}) == "");
  CHECK(lacks(with_state("{", "["), {"state.json", "damaged"}) == "");
}

TEST_CASE("Tensors of another run are refused before anything is copied") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  store.save(make_state(10), 1, 0);
  const auto load = [&](const std::function<void(std::vector<NamedTensor>&)>& change) {
    auto weights = zeros_like(make_state(10).weights);
    change(weights);
    const std::string message = refusal([&] { store.load_tensors(10, weights, {}); });
    for (const NamedTensor& tensor : weights) CHECK(tensor.second.count_nonzero().item<int64_t>() == 0);
    return message;
  };
  CHECK(lacks(load([](auto& w) { w[1].second = at::zeros({7}); }),
              {"b.weight", "BFloat16 (7)", "Float (7)"}) == "");
  CHECK(lacks(load([](auto& w) { w[0].second = at::zeros({10, 100}); }), {"a.weight", "(100, 10)"}) == "");
  CHECK(lacks(load([](auto& w) { w[0].first = "c.weight"; }), {"no tensor \"c.weight\""}) == "");
  CHECK(lacks(load([](auto& w) { w.pop_back(); }), {"no tensor \"b.weight\""}) == "");
}

TEST_CASE("A resumed run must be the same run") {
  Config config;
  const RunIdentity saved = run_identity(config, 1, 2);
  const auto differing = [&](const Config& now, uint64_t data, uint64_t tokenizer, bool allow = false) {
    return refusal([&] { require_same_run(saved, run_identity(now, data, tokenizer), allow); });
  };
  CHECK(differing(config, 1, 2) == "accepted");
  Config same = config;
  same.model.kv_heads = same.model.heads;  // what 0 means
  same.train.micro_batch = 3;
  same.train.steps = 5;
  same.optim.lr = 1;
  CHECK(differing(same, 1, 2) == "accepted");
  CHECK(lacks(differing(config, 9, 2), {"data", "--allow-data-change"}) == "");
  CHECK(differing(config, 9, 2, true) == "accepted");
  Config order = config;
  order.data.context = 1024;
  CHECK(lacks(differing(order, 1, 2), {"data.context was 4096, now 1024", "--allow-data-change"}) == "");
  CHECK(differing(order, 1, 2, true) == "accepted");
  CHECK(lacks(differing(config, 1, 0, true), {"tokenizer", "0000000000000002, now none"}) == "");
  Config other = config;
  other.model.layers = 12;
  other.optim.master = "split";
  other.train.dtype = "fp32";
  CHECK(lacks(differing(other, 1, 2, true), {"model.layers was 24, now 12",
                                             "optim.master was stochastic, now split", "train.dtype"}) == "");
}

TEST_CASE("Killed at any moment, the newest checkpoint can be loaded") {
  constexpr int64_t kElements = 2'000'000;  // a save takes long enough to be hit
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  std::vector<CheckpointState> states;  // made here: a forked child has no thread pool
  for (int64_t step = 1; step <= 8; ++step) states.push_back(make_state(step, kElements));
  store.save(states[0], 2, 0);
  std::mt19937 random(11);
  std::uniform_int_distribution<int> delay(0, 120);
  int during = 0;
  for (int round = 0; round < 25; ++round) {
    const int64_t first = *store.newest();
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      // Steps go round, so that checkpoints are also replaced and dropped.
      for (size_t i = static_cast<size_t>(first);; ++i) store.save(states[i % states.size()], 2, 4);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(delay(random)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const std::string& name : names_in(run / "checkpoints")) during += name.starts_with(".partial-");
    const auto newest = store.newest();
    REQUIRE(newest);
    check_loads(store, *newest, kElements);
  }
  CHECK(during > 0);
  store.save(states[7], 1, 0);
  CHECK(names_in(run / "checkpoints").size() == 1);
}

TEST_CASE("A file size limit ends a save with one line and leaves the old checkpoints") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  store.save(make_state(10), 1, 0);
  const CheckpointState large = make_state(20, 100'000);
  check_in_child([&] {
    narrowgauge::test::limit_file_size(150'000);
    return lacks(refusal([&] { store.save(large, 1, 0); }), {"weights.safetensors"}).empty();
  });
  CHECK(names_in(run / "checkpoints").size() == 1);
  check_loads(store, 10);
}

TEST_CASE("A full disk is seen before writing and while writing") {
  const TemporaryFolder scratch;
  const fs::path disk = scratch / "disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=4m") != 0) {
    WARN("skipped: mounting a tmpfs needs root");
    return;
  }
  {
    CheckpointStore store(disk);
    store.save(make_state(10), 1, 0);
    const std::string message = refusal([&] { store.save(make_state(20, 10'000'000), 1, 0); });
    CHECK(lacks(message, {"step-00000020", "MiB", "free", "train.keep_last"}) == "");
    const std::string late = refusal([&] {
      narrowgauge::io::write_safetensors(disk / "x", {{"x", at::zeros({2'000'000})}});
    });
    CHECK(lacks(late, {(disk / "x").string()}) == "");
    CHECK(!fs::exists(disk / "x"));
    CHECK(names_in(disk / "checkpoints").size() == 1);
    check_loads(store, 10);
  }
  CHECK(::umount(disk.c_str()) == 0);
}

TEST_CASE("An unwritable run folder is the user's error") {
  const TemporaryFolder scratch;
  const CheckpointState state = make_state(10);
  write_bytes(scratch / "file", "");
  CheckpointStore in_file(scratch / "file");
  CHECK(lacks(refusal([&] { in_file.save(state, 1, 0); }), {(scratch / "file").string()}) == "");
  fs::create_directory(scratch / "run");
  fs::permissions(scratch / "run", fs::perms::owner_read | fs::perms::owner_exec);
  fs::permissions(scratch.path(), fs::perms::owner_all | fs::perms::others_exec | fs::perms::others_read);
  check_in_child([&] {
    if (::getuid() == 0 && ::setuid(65534) != 0) return false;  // root may write everywhere
    CheckpointStore store(scratch / "run");
    return lacks(refusal([&] { store.save(state, 1, 0); }), {(scratch / "run").string()}).empty();
  });
}

TEST_CASE("An export in fp32 has the exact master weights") {
  const TemporaryFolder run;
  CheckpointState state = make_state(10);
  narrowgauge::ModelConfig& model = state.config.model;
  model.vocab_size = 50;
  model.layers = 1;
  model.hidden_size = 16;
  model.heads = 2;
  model.kv_heads = 1;
  model.ffn_size = 24;
  const narrowgauge::model::ParameterArena arena(model, at::kBFloat16, at::kCPU);
  const at::Tensor master = at::randn(arena.weights().sizes());
  const at::Tensor remainder = at::zeros(master.sizes(), at::kShort);
  auto* weight = static_cast<uint16_t*>(arena.weights().mutable_data_ptr());
  for (int64_t i = 0; i < master.numel(); ++i) {
    const auto split = narrowgauge::cuda::split_master(master.const_data_ptr<float>()[i]);
    weight[i] = static_cast<uint16_t>(split.weight);
    remainder.mutable_data_ptr<int16_t>()[i] = static_cast<int16_t>(split.remainder);
  }
  state.weights = narrowgauge::train::named_weights(arena);
  write_bytes(run / "tokenizer.byte", "");

  const auto exported = [&](const std::vector<NamedTensor>& optimizer, at::ScalarType dtype) {
    const TemporaryFolder out;
    state.optimizer = optimizer;
    CheckpointStore(run.path()).save(state, 1, 0);
    narrowgauge::train::export_checkpoint(run.path(), "", dtype, out.path());
    CHECK(fs::exists(out / "tokenizer.byte"));
    return narrowgauge::io::SafetensorsFile(out / "model.safetensors")
        .read("model.layers.0.mlp.up_proj.weight");
  };
  const narrowgauge::model::ParameterSlot& slot = arena.slot("layers.0.gate_up.weight");
  const auto up_rows = [&](const at::Tensor& flat) {
    return flat.narrow(0, slot.offset, slot.count).view(slot.spec.shape).narrow(0, 24, 24);
  };
  CHECK(at::equal(exported({{"remainder", remainder}}, at::kFloat), up_rows(master)));
  CHECK(at::equal(exported({{"master", master}}, at::kFloat), up_rows(master)));
  CHECK(at::equal(exported({{"m.codes", remainder}}, at::kFloat), up_rows(arena.weights()).to(at::kFloat)));
  CHECK(at::equal(exported({{"remainder", remainder}}, at::kBFloat16), up_rows(arena.weights())));
  const std::string message = refusal([&] {
    exported({{"remainder", remainder.narrow(0, 0, 5)}}, at::kFloat);
  });
  CHECK(lacks(message, {"optimizer.safetensors", "remainder"}) == "");
  CHECK(lacks(refusal([&] { narrowgauge::train::export_checkpoint(run.path(), "7", at::kFloat, run / "x"); }),
              {"step 7"}) == "");
}
