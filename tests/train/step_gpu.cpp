// Steps and whole runs on the GPU.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "lib/ops/choices.h"
#include "lib/ops/gemm.h"
#include "lib/train/device.h"
#include "lib/train/residency.h"
#include "lib/train/trained_model.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/train/bad_gradient.h"
#include "tests/train/gradients.h"
#include "tests/train/runs.h"

namespace narrowgauge::test {
namespace {

const at::Device kGpu(at::kCUDA, 0);

void use_gpu() {
  train::set_numerics(true);
  train::open_device("cuda");
}

TEST_CASE("1 x 8 and 8 x 1 micro-batches on the GPU in fp32") {
  use_gpu();
  const Config config = small_config("fp32", 64);
  const at::Tensor whole = gradient(config, kGpu, 8);
  const double difference = relative_difference(gradient(config, kGpu, 1), whole);
  INFO(difference);
  REQUIRE(difference < 1e-6);
  REQUIRE(relative_difference(whole, gradient(config, at::kCPU, 8)) < 1e-5);
}

TEST_CASE("1 x 8 micro-batches in bf16 are within 1.5 times the error of 8 x 1") {
  use_gpu();
  Config config = small_config("bf16", 64);
  const at::Tensor one = gradient(config, kGpu, 1);
  const at::Tensor eight = gradient(config, kGpu, 8);
  config.train.dtype = "fp32";
  config.memory.grad_dtype = "fp32";
  const at::Tensor exact =
      gradient(config, kGpu, 8);  // its weights are not rounded to bf16: part of both errors
  const double error = relative_difference(one, exact);
  const double own_error = relative_difference(eight, exact);
  WARN(fmt::format("relative error of the bf16 gradient: 1 x 8 {:.5f}, 8 x 1 {:.5f}", error, own_error));
  REQUIRE(own_error < 0.05);
  REQUIRE(error < 1.5 * own_error);
}

TEST_CASE("a gradient that is not finite skips the step on the GPU") {
  use_gpu();
  check_bad_gradient(kGpu, "bf16");
  check_bad_gradient(kGpu, "fp32");
  check_bad_gradient(kGpu, "bf16", /*cuda_graphs=*/true);
}

TEST_CASE("10 steps with and without recomputation give the same bits on the GPU") {
  const TemporaryFolder folder;
  for (const char* dtype : {"bf16", "fp32"}) {
    Config config = byte_config(write_corpus(folder.path()), "cuda", dtype, 4, 128, 128);
    config.train.steps = 10;
    const std::string name = dtype;
    train_run(config, folder / (name + "-none"));
    config.memory.recompute = {RecomputeLevel::block};
    train_run(config, folder / (name + "-block"));
    require_same_losses(folder / (name + "-none"), folder / (name + "-block"));
    const std::string weights = "checkpoints/step-00000010/weights.safetensors";
    REQUIRE(read_text(folder / (name + "-none") / weights) ==
            read_text(folder / (name + "-block") / weights));
  }
}

TEST_CASE("a resumed run on the GPU continues with the same bits") {
  const TemporaryFolder folder;
  for (const char* master : {"stochastic", "split", "fp32"}) {
    Config config = byte_config(write_corpus(folder.path()), "cuda", "bf16", 2, 128, 128);
    config.optim.master = master;
    config.optim.schedule_steps = 20;
    config.train.micro_batch = 4;
    config.train.steps = 20;
    const std::string name = master;
    train_run(config, folder / (name + "-whole"));
    config.train.steps = 9;
    train_run(config, folder / (name + "-parts"));
    config.train.steps = 20;
    train_run(config, folder / (name + "-parts"), "auto");
    require_same_losses(folder / (name + "-whole"), folder / (name + "-parts"));
  }
}

std::string kernel_report(const std::filesystem::path& run) {
  return rows(run, "start").back().at("gemm").get<std::string>();
}

TEST_CASE("a resumed run uses the kernels of its checkpoint") {
  const TemporaryFolder folder;
  Config config = byte_config(write_corpus(folder.path()), "cuda", "bf16", 2, 128, 128);
  config.optim.schedule_steps = 20;
  config.train.micro_batch = 4;
  config.memory.loss_chunk = 200;  // with a tail
  config.train.steps = 20;
  train_run(config, folder / "whole");
  CHECK(ops::unchosen_gemms() == 0);
  config.train.steps = 9;
  train_run(config, folder / "parts");
  CHECK(kernel_report(folder / "parts").find("from cache") != std::string::npos);
  config.train.steps = 20;
  std::filesystem::remove(kernel_cache());
  train_run(config, folder / "parts", "auto");
  const std::string report = kernel_report(folder / "parts");
  INFO(report);
  CHECK(report.find("18 shapes, algorithms 18 from the checkpoint") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(kernel_cache()));
  require_same_losses(folder / "whole", folder / "parts");

  config.train.tune_kernels = false;
  train_run(config, folder / "heuristics");
  CHECK(kernel_report(folder / "heuristics") == "first heuristics (train.tune_kernels is false)");
  CHECK(ops::unchosen_gemms() == 18);
}

TEST_CASE("train.deterministic auto is decided once and kept by a resume") {
  const TemporaryFolder folder;
  Config config = byte_config(write_corpus(folder.path()), "cuda", "bf16", 2, 128, 128);
  config.train.deterministic = "auto";
  config.optim.schedule_steps = 20;
  config.train.steps = 4;
  std::filesystem::remove(kernel_cache());
  train_run(config, folder / "run");
  const auto first = rows(folder / "run", "start").back();
  INFO(first);
  CHECK(first.at("determinism").get<std::string>().starts_with("auto: it "));
  const std::string cache = read_text(kernel_cache());
  CHECK(cache.find("attention bf16 B16 T128") != std::string::npos);
  CHECK(cache.find(" deterministic in ") != std::string::npos);  // both ways were timed
  CHECK(cache.find("\"deterministic L2 H128") != std::string::npos);
  const std::string saved = read_text(folder / "run/config.yaml");
  CHECK(saved.find("deterministic: auto") != std::string::npos);
  const bool on = first.at("deterministic").get<bool>();
  train_run(config, folder / "second");
  CHECK(rows(folder / "second", "start").back().at("determinism") == first.at("determinism"));
  CHECK(read_text(kernel_cache()) == cache);  // and not again

  config.train.steps = 6;
  std::filesystem::remove(kernel_cache());
  train_run(config, folder / "run", "auto");
  const auto resumed = rows(folder / "run", "start").back();
  CHECK(resumed.at("determinism") == "auto: as the checkpoint was");
  CHECK(resumed.at("deterministic").get<bool>() == on);

  std::filesystem::remove(kernel_cache());  // a model that is only run takes the checkpoint's kernels
  const train::TrainedModel trained = train::load_trained_model(folder / "run", "", "");
  CHECK(ops::attention_kernel_name(trained.model->attention_choice().kernel) == resumed.at("attention"));
  CHECK(ops::choices().news() == nlohmann::json::object());
}

TEST_CASE("an interrupted deterministic run goes on deterministic under auto") {
  const TemporaryFolder folder;
  Config config = byte_config(write_corpus(folder.path()), "cuda", "bf16", 2, 128, 128);
  config.optim.schedule_steps = 8;
  config.train.steps = 8;
  train_run(config, folder / "whole");
  config.train.steps = 4;
  train_run(config, folder / "parts");
  config.train.steps = 8;
  config.train.deterministic = "auto";
  std::filesystem::remove(kernel_cache());
  train_run(config, folder / "parts", "auto");
  const auto resumed = rows(folder / "parts", "start").back();
  CHECK(resumed.at("deterministic") == true);
  CHECK(resumed.at("determinism") == "auto: as the checkpoint was");
  require_same_losses(folder / "whole", folder / "parts");
}

TEST_CASE("memory that has left the card is found by its speed") {
  use_gpu();
  const auto bytes = at::TensorOptions(at::kByte).device(kGpu);
  const at::Tensor target = at::empty({int64_t{64} << 20}, bytes);
  std::vector<at::Tensor> buffers{at::empty({int64_t{1} << 30}, bytes), at::empty({1000}, bytes)};
  train::Residency residency([&] { return train::read_speeds(buffers, target); });
  residency.calibrate();
  CHECK(residency.spilled_bytes() == 0);
  buffers.push_back(train::host_tensor({int64_t{130} << 20}, at::kByte, kGpu));  // what a driver does
  CHECK(residency.spilled_bytes() == int64_t{128} << 20);
}

TEST_CASE("a small model overfits one batch on the GPU") {
  const TemporaryFolder folder;
  Config config = byte_config(write_corpus(folder.path()), "cuda", "bf16", 2, 128, 64);
  const std::string text = read_text(config.data.train).substr(2000, 2 * (16 * 64 + 1));
  write_text(folder / "one.bin", text);
  config.data.train = (folder / "one.bin").string();
  config.train.steps = 300;
  config.optim.lr = 3e-3;
  config.optim.weight_decay = 0;
  train_run(config, folder / "run");
  REQUIRE(mean_loss(folder / "run", 1) < 0.05);
}

}  // namespace
}  // namespace narrowgauge::test
