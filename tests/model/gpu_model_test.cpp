#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "lib/model/generate.h"
#include "lib/model/recompute.h"
#include "tests/model/cases.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using namespace narrowgauge::test;

namespace {

const at::Device kGpu(at::kCUDA, 0);

int64_t allocated_bytes() {
  const auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(0);
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].current;
}

}  // namespace

TEST_CASE("loss and gradients equal those of an fp64 model") { check_against_fp64(kGpu); }
TEST_CASE("bf16 error is at most twice that of a plain model") { check_bf16_error(kGpu); }
TEST_CASE("two backward passes add up") { check_accumulation(kGpu); }
TEST_CASE("the tied gradient is embedding plus head") { check_tied_gradient(kGpu); }
TEST_CASE("a document mask equals separate documents") { check_documents(kGpu); }
TEST_CASE("padding stays zero, fp32") { check_padding_stays_zero({kGpu, at::kFloat}); }
TEST_CASE("padding stays zero, bf16") { check_padding_stays_zero({kGpu, at::kBFloat16}); }

TEST_CASE("recompute levels give the same bits") {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  check_recompute_bits({kGpu, at::kFloat});
  check_recompute_bits({kGpu, at::kBFloat16});
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_CASE("a layer keeps the bytes of the table") {
  // Every tensor is a whole number of the allocator's blocks, so that nothing is rounded.
  ModelConfig config = tiny_config();
  config.hidden_size = 256;
  config.ffn_size = 512;
  config.head_dim = 64;
  constexpr int64_t kTokens = 256;
  const auto after_forward = [&](RecomputeLevel level) {
    const auto model = make_model(config, {kGpu, at::kBFloat16}, {level});
    const model::Batch batch = random_batch(config, 2, 128, kGpu);
    const at::Tensor scale = scale_for(batch);
    model->loss(batch, scale);  // warms up library workspaces
    const int64_t before = allocated_bytes();
    const ops::LossSums sums = model->loss(batch, scale);
    return allocated_bytes() - before;
  };
  const int64_t block = after_forward(RecomputeLevel::block);
  for (const RecomputeLevel level :
       {RecomputeLevel::none, RecomputeLevel::elementwise, RecomputeLevel::ffn, RecomputeLevel::ffn_qkv}) {
    INFO("level " << static_cast<int>(level));
    const int64_t more = config.layers * (model::kept_bytes(config, level, kTokens, 2) -
                                          model::kept_bytes(config, RecomputeLevel::block, kTokens, 2));
    const int64_t found = after_forward(level) - block;
    CHECK(found >= more);
    CHECK(found - more <= config.layers * 2 * 512);  // the kernel's random state
  }
}

TEST_CASE("generation with a cache equals running everything again") {
  const ModelConfig config = tiny_config();
  const auto model = make_model(config, {kGpu, at::kFloat}, {RecomputeLevel::none});
  const at::Tensor tokens = random_batch(config, 1, 20, kGpu).tokens;
  const at::Tensor full = model->forward(tokens);
  model::KeyValueCache cache = model->make_cache();
  model->decode(tokens.slice(1, 0, 12).flatten(), cache);
  for (int64_t t = 12; t < 20; ++t) {
    CHECK(relative_error(model->decode(tokens.slice(1, t, t + 1).flatten(), cache)[0], full[t]) < 1e-5);
  }
  const auto half = make_model(config, {kGpu, at::kBFloat16}, {RecomputeLevel::none});
  const model::SampleOptions options{
      .max_tokens = 200, .temperature = 0.8, .top_k = 20, .top_p = 0.95, .seed = 4};
  const auto drawn = generate(*half, {1}, options);
  CHECK(drawn.size() == 200);
  CHECK(drawn == generate(*half, {1}, options));
}
