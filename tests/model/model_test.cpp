#include <ATen/Functions.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <set>

#include "lib/base/error.h"
#include "lib/base/interruption.h"
#include "lib/model/init.h"
#include "lib/model/slab.h"
#include "tests/model/cases.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using namespace narrowgauge::test;

namespace {

// Bytes allocated on the CPU by this thread less those freed.
struct AllocationCounter : c10::MemoryReportingInfoBase {
  int64_t bytes = 0;
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { bytes += size; }
  bool memoryProfilingEnabled() const override { return true; }
};

const RecomputeLevel kLevels[] = {RecomputeLevel::none, RecomputeLevel::elementwise, RecomputeLevel::ffn,
                                  RecomputeLevel::ffn_qkv, RecomputeLevel::block};

}  // namespace

TEST_CASE("loss and gradients equal those of an fp64 model") { check_against_fp64(at::kCPU); }
TEST_CASE("bf16 error is at most twice that of a plain model") { check_bf16_error(at::kCPU); }
TEST_CASE("recompute levels give the same bits, fp32") { check_recompute_bits({at::kCPU, at::kFloat}); }
TEST_CASE("recompute levels give the same bits, bf16") { check_recompute_bits({at::kCPU, at::kBFloat16}); }
TEST_CASE("two backward passes add up") { check_accumulation(at::kCPU); }
TEST_CASE("the tied gradient is embedding plus head") { check_tied_gradient(at::kCPU); }
TEST_CASE("a document mask equals separate documents") { check_documents(at::kCPU); }
TEST_CASE("padding stays zero, fp32") { check_padding_stays_zero({at::kCPU, at::kFloat}); }
TEST_CASE("padding stays zero, bf16") { check_padding_stays_zero({at::kCPU, at::kBFloat16}); }

TEST_CASE("a forward leaves everything in the slab") {
  for (const bool qk_norm : {false, true}) {
    ModelConfig config = tiny_config();
    config.qk_norm = qk_norm;
    for (const RecomputeLevel level : kLevels) {
      INFO("level " << static_cast<int>(level) << ", qk_norm " << qk_norm);
      const auto model = make_model(config, {}, {level});
      const model::Batch batch = random_batch(config, 2, 64, at::kCPU);
      const at::Tensor scale = scale_for(batch);
      model->reserve(layout::Purpose::train, 2, 64);
      const int64_t reserved = model->slab_bytes();
      CHECK(reserved == model->layout_of(layout::Purpose::train, 2, 64)->bytes());
      const auto counter = std::make_shared<AllocationCounter>();
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
      const ops::LossSums sums = model->loss(batch, scale);
      CHECK(counter->bytes < 256);  // scalars
      sums.loss.backward();
      CHECK(counter->bytes < 256);
      CHECK(model->slab_bytes() == reserved);
    }
  }
}

TEST_CASE("every pass finds its buffers at the same addresses") {
  const ModelConfig config = tiny_config();
  const auto model = make_model(config, {}, {RecomputeLevel::ffn});
  const auto layout = model->layout_of(layout::Purpose::train, 2, 64);
  model::Slab slab(at::kCPU);
  slab.reserve(layout->bytes());
  std::vector<std::vector<const void*>> addresses(2);
  for (auto& seen : addresses) {
    slab.begin(layout);
    for (const layout::Buffer& buffer : layout->buffers()) {
      const at::Tensor tensor = slab.take(buffer.name, buffer.layer, buffer.phase);
      CHECK(static_cast<int64_t>(tensor.nbytes()) <= buffer.shape.bytes());
      CHECK(tensor.size(0) == buffer.shape.rows);
      CHECK(tensor.dim() == (buffer.shape.columns == 0 ? 1 : 2));
      CHECK_FALSE(tensor.requires_grad());
      seen.push_back(tensor.const_data_ptr());
    }
  }
  CHECK(addresses[0] == addresses[1]);
  // A write through one tensor is no change of another in autograd's eyes.
  const at::Tensor one = slab.take(layout::Name::qkv, 0, layout::Phase::forward);
  const at::Tensor two = slab.take(layout::Name::qkv, 0, layout::Phase::forward);
  one.fill_(3);
  CHECK(two[5][5].item<float>() == 3);
  CHECK(two._version() == 0);
}

TEST_CASE("a backward that comes after another pass is refused") {
  const ModelConfig config = tiny_config();
  const auto model = make_model(config, {}, {RecomputeLevel::none});
  const model::Batch batch = random_batch(config, 1, 16, at::kCPU);
  const at::Tensor scale = scale_for(batch);
  const at::Tensor early = model->loss(batch, scale).loss;
  const at::Tensor late = model->loss(batch, scale).loss;
  CHECK_THROWS_AS(early.backward(), std::logic_error);
  late.backward();
  const at::Tensor again = model->loss(batch, scale).loss;
  model->forward(batch.tokens);
  CHECK_THROWS_AS(again.backward(), std::logic_error);
}

TEST_CASE("parameters are views of the arena under their names") {
  ModelConfig config = tiny_config();
  config.qk_norm = true;
  const auto model = make_model(config, {}, {RecomputeLevel::none});
  const model::ParameterArena& arena = model->arena();
  std::set<std::string> names;
  for (const auto& item : model->named_parameters()) {
    names.insert(item.key());
    const model::ParameterSlot& slot = arena.slot(item.key());
    CHECK(item.value().data_ptr() == arena.weight(slot).data_ptr());
    CHECK(item.value().requires_grad());
    CHECK(item.value().grad().data_ptr() == arena.gradient(slot).data_ptr());
    CHECK(slot.offset % model::kArenaAlignment == 0);
    CHECK(slot.grad_offset % model::kArenaAlignment == 0);
  }
  const auto specs = model::parameter_specs(config);
  CHECK(names.size() == specs.size());
  int64_t count = 0;
  for (const auto& slot : arena.slots()) count += slot.count;
  for (const auto& spec : specs) CHECK(names.count(spec.name) == 1);
  // Large matrices, small ones, norms, embedding and head.
  std::vector<int> groups;
  for (const auto& slot : arena.slots()) {
    const bool matrix = slot.spec.kind == model::ParameterKind::matrix;
    groups.push_back(matrix ? (slot.count < model::kLargeMatrix ? 1 : 0)
                            : (slot.spec.kind == model::ParameterKind::norm ? 2 : 3));
  }
  CHECK(std::is_sorted(groups.begin(), groups.end()));
  CHECK(std::set<int>(groups.begin(), groups.end()).size() == 4);
  CHECK(arena.slots().back().spec.name == "head.weight");
}

TEST_CASE("fp32 gradients of bf16 parameters are not set on the parameters") {
  const auto model =
      make_model(tiny_config(), {at::kCPU, at::kBFloat16}, {RecomputeLevel::none}, at::kBFloat16);
  CHECK(model->named_parameters()["layers.0.qkv.weight"].grad().defined());
  CHECK_FALSE(model->named_parameters()["norm.weight"].grad().defined());
  CHECK_THROWS_AS(model->arena().allocate_gradients(at::kFloat), std::logic_error);
}

TEST_CASE("initial weights") {
  ModelConfig config = tiny_config();
  config.hidden_size = 64;
  config.init_std = 0.02;
  config.init = "scaled";
  model::ParameterArena arena(config, at::kFloat, at::kCPU);
  model::initialise(arena, config, 3);
  const auto std_of = [&](const char* name) { return arena.weight(arena.slot(name)).std().item<double>(); };
  CHECK(std_of("layers.0.qkv.weight") == Approx(0.02).epsilon(0.05));
  CHECK(std_of("embedding.weight") == Approx(0.02).epsilon(0.05));
  CHECK(std_of("layers.1.down.weight") == Approx(0.01).epsilon(0.05));
  CHECK(std::abs(arena.weight(arena.slot("layers.0.qkv.weight")).mean().item<double>()) < 1e-3);
  CHECK(at::equal(arena.weight(arena.slot("norm.weight")), at::ones({64})));

  model::ParameterArena half(config, at::kBFloat16, at::kCPU);
  model::initialise(half, config, 3);
  CHECK(at::equal(half.weights(), arena.weights().to(at::kBFloat16)));
  model::ParameterArena other(config, at::kFloat, at::kCPU);
  model::initialise(other, config, 4);
  CHECK_FALSE(at::equal(other.weights(), arena.weights()));
}

TEST_CASE("the first loss is that of a uniform guess") {
  ModelConfig config = tiny_config();
  config.init_std = 0.02;
  model::TransformerOptions options;
  options.max_context = 64;
  model::Transformer model(config, options);
  model::initialise(model.arena(), config, 1);
  const model::Batch batch = random_batch(config, 2, 64, at::kCPU);
  const at::NoGradGuard no_gradient;
  const ops::LossSums sums = model.loss(batch, scale_for(batch));
  CHECK_FALSE(sums.loss.requires_grad());
  CHECK(sums.loss.item<double>() / static_cast<double>(counted(batch)) ==
        Approx(std::log(67.0)).epsilon(0.02));
}

TEST_CASE("without gradients nothing is kept and nothing accumulated") {
  const auto model = make_model(tiny_config(), {}, {RecomputeLevel::none});
  const model::Batch batch = random_batch(tiny_config(), 2, 64, at::kCPU);
  const at::Tensor scale = scale_for(batch);
  const at::NoGradGuard no_gradient;
  model->loss(batch, scale);  // makes the slab
  const auto counter = std::make_shared<AllocationCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  const ops::LossSums sums = model->loss(batch, scale);
  CHECK(counter->bytes < 256);
  CHECK(model->arena().grad32().abs().sum().item<double>() == 0);
}

TEST_CASE("a stop request interrupts forward, backward, the loss and decoding") {
  struct Withdrawal {
    ~Withdrawal() { withdraw_interruption(); }
  };
  for (const RecomputeLevel level : {RecomputeLevel::none, RecomputeLevel::block}) {
    const Withdrawal at_the_end;
    const auto model = make_model(tiny_config(), {}, {level});
    const model::Batch batch = random_batch(tiny_config(), 2, 32, at::kCPU);
    const at::Tensor scale = scale_for(batch);
    const Result whole = train_pass(*model, batch);
    const at::Tensor hidden = at::zeros({64, tiny_config().hidden_size});
    const at::Tensor head = model->arena().weight(model->arena().slot("head.weight"));
    const ops::LossBuffers buffers{.losses = at::empty({64}),
                                   .lse = at::empty({64}),
                                   .sums = at::empty({3}),
                                   .logits = at::empty({20, tiny_config().vocab_size}),
                                   .dhidden = {}};
    const ops::LossSums sums = model->loss(batch, scale);
    model::KeyValueCache cache = model->make_cache();

    request_interruption(0);
    CHECK_THROWS_AS(sums.loss.backward(), Interrupted);  // through autograd's engine
    CHECK_THROWS_AS(model->loss(batch, scale), Interrupted);
    CHECK_THROWS_AS(ops::linear_cross_entropy(hidden, head, batch.targets.reshape({-1}), scale, buffers, {},
                                              {.vocab = tiny_config().vocab_size}),
                    Interrupted);
    CHECK_THROWS_AS(model->decode(batch.tokens[0], cache), Interrupted);
    CHECK_THROWS_AS(model->forward(batch), Interrupted);
    withdraw_interruption();
    CHECK(same_bits(train_pass(*model, batch), whole));
  }
}

TEST_CASE("misuse is named") {
  const ModelConfig config = tiny_config();
  model::TransformerOptions options;
  options.max_context = 16;
  options.recompute.assign(3, RecomputeLevel::none);
  CHECK_THROWS_AS(model::Transformer(config, options), std::invalid_argument);
  options.recompute.clear();
  options.attention = "cudnn";
  CHECK_THROWS_AS(model::Transformer(config, options), UserError);
  options.attention = "auto";
  model::Transformer model(config, options);
  const model::Batch batch = random_batch(config, 1, 16, at::kCPU);
  CHECK_THROWS_AS(model.loss(batch, scale_for(batch)), std::logic_error);  // no gradients allocated
  model.arena().allocate_gradients(at::kFloat);
  const at::Tensor loss = model.loss(batch, scale_for(batch)).loss;
  loss.backward({}, /*retain_graph=*/true);
  CHECK_THROWS_AS(loss.backward(), std::logic_error);
}
