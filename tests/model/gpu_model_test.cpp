#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "lib/model/generate.h"
#include "tests/model/cases.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using namespace narrowgauge::test;

namespace {

const at::Device kGpu(at::kCUDA, 0);

// Bytes that `body` asks the allocator for, whatever it gives back.
template <class Body>
int64_t requested_by(Body&& body) {
  const auto requested = [] {
    const auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(0);
    return stats.requested_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].allocated;
  };
  const int64_t before = requested();
  body();
  return requested() - before;
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

TEST_CASE("a steady step allocates no activation") {
  ModelConfig config = tiny_config();
  config.hidden_size = 512;
  config.ffn_size = 1024;
  config.head_dim = 128;
  constexpr int64_t kBatch = 2;
  constexpr int64_t kContext = 128;
  for (const RecomputeLevel level : {RecomputeLevel::none, RecomputeLevel::ffn, RecomputeLevel::block}) {
    const auto model = make_model(config, {kGpu, at::kBFloat16}, {level}, at::kBFloat16);
    // What LibTorch's attention kernels allocate themselves: results, and in backward gradients.
    const ops::Attention attention{
        .shape = {kBatch, kContext, config.heads, config.kv_heads, config.head_dim},
        .kernel = model->attention_choice().kernel,
        .deterministic = true,
        .documents = {}};
    const auto bf16 = at::TensorOptions(kGpu).dtype(at::kBFloat16);
    const at::Tensor qkv = at::randn({kBatch * kContext, config.qkv_width()}, bf16);
    const at::Tensor dqkv = at::empty_like(qkv);
    const ops::AttentionResult result{
        .out = at::empty({kBatch * kContext, config.query_width()}, bf16),
        .lse = at::empty({kBatch * kContext * config.heads}, at::TensorOptions(kGpu))};
    const at::Tensor scratch =
        at::empty({ops::attention_scratch_bytes(attention, kGpu)}, at::TensorOptions(kGpu).dtype(at::kByte));
    const int64_t forward = requested_by([&] { ops::attention_forward(result, qkv, attention, scratch); });
    const int64_t backward =
        requested_by([&] { ops::attention_backward(dqkv, result.out, qkv, result, attention, scratch); });
    const int64_t forwards = level == RecomputeLevel::block ? 2 : 1;
    const int64_t kernels = config.layers * (forwards * forward + backward);

    const model::Batch batch = random_batch(config, kBatch, kContext, kGpu);
    const at::Tensor scale = scale_for(batch);
    const auto step = [&] { model->loss(batch, scale).loss.backward(); };
    step();
    const int64_t slab = model->slab_bytes();
    const int64_t own = requested_by(step) - kernels;
    INFO("level " << static_cast<int>(level) << ": " << own << " bytes beside " << kernels
                  << " of attention");
    CHECK(model->slab_bytes() == slab);
    // Scalars and the sorted ids of the embedding's backward; an activation has 256 KiB.
    CHECK(own >= 0);
    CHECK(own < kBatch * kContext * 64);
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
