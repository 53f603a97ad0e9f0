#include <ATen/Functions.h>
#include <fmt/format.h>

#include "tests/model/cases.h"
#include "tests/model/reference_model.h"
#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace {

const RecomputeLevel kLevels[] = {RecomputeLevel::none, RecomputeLevel::elementwise, RecomputeLevel::ffn,
                                  RecomputeLevel::ffn_qkv, RecomputeLevel::block};

std::vector<ModelConfig> variants() {
  std::vector<ModelConfig> all(5, tiny_config());
  all[1].qk_norm = true;
  all[2].tie_embeddings = true;
  all[2].kv_heads = 4;
  all[3].qk_norm = true;
  all[3].kv_heads = 1;
  all[3].layers = 1;
  all[4].qk_norm = true;
  all[4].kv_heads = 4;
  all[4].head_dim = 8;
  all[4].layers = 5;
  return all;
}

std::string describe(const ModelConfig& config) {
  return fmt::format("layers {}, kv_heads {}, qk_norm {}, tied {}", config.layers, config.kv_heads,
                     config.qk_norm, config.tie_embeddings);
}

}  // namespace

void check_against_fp64(const at::Device& device) {
  for (const ModelConfig& config : variants()) {
    for (const bool documents : {false, true}) {
      INFO(describe(config) << ", documents " << documents);
      const auto model =
          make_model(config, {device, at::kFloat}, {RecomputeLevel::none}, at::kFloat, documents);
      model::Batch batch = random_batch(config, 2, 24, device);
      if (documents) add_documents(batch, {0, 1, 9, 20});
      const ReferenceModel reference(*model, device, at::kDouble);
      const Result right = reference.train_pass(batch);
      const Result result = train_pass(*model, batch);
      CHECK(relative_error(result.loss, right.loss) < 1e-6);
      REQUIRE(result.gradients.size() == right.gradients.size());
      for (const auto& [name, gradient] : right.gradients) {
        INFO(name);
        CHECK(relative_error(result.gradients.at(name), gradient) < 2e-5);
      }
      if (!documents) {
        CHECK(relative_error(model->forward(batch.tokens), reference.logits(batch).detach()) < 1e-5);
      }
    }
  }
}

void check_bf16_error(const at::Device& device) {
  for (const ModelConfig& config : variants()) {
    INFO(describe(config));
    const auto model = make_model(config, {device, at::kBFloat16}, {RecomputeLevel::none});
    const model::Batch batch = random_batch(config, 4, 64, device);
    const Result right = ReferenceModel(*model, device, at::kDouble).train_pass(batch);
    const Result plain = ReferenceModel(*model, device, at::kBFloat16).train_pass(batch);
    const Result result = train_pass(*model, batch);
    const double plain_error = relative_error(plain.gradients, right.gradients);
    const double error = relative_error(result.gradients, right.gradients);
    INFO("gradient error " << error << ", of the plain model " << plain_error);
    CHECK(error < 2 * plain_error);
    CHECK(error < 0.1);
    CHECK(relative_error(result.loss, right.loss) < 2 * relative_error(plain.loss, right.loss) + 1e-3);
  }
}

void check_recompute_bits(const Where& where) {
  for (const ModelConfig& config : variants()) {
    INFO(describe(config));
    const model::Batch batch = random_batch(config, 2, 40, where.device);
    const auto run = [&](const std::vector<RecomputeLevel>& levels) {
      return train_pass(*make_model(config, where, levels, where.dtype), batch);
    };
    const Result everything = run({RecomputeLevel::none});
    CHECK(everything.loss.item<double>() > 0);
    const auto replanned = make_model(config, where, {RecomputeLevel::none}, where.dtype);
    for (const RecomputeLevel level : kLevels) {
      INFO("level " << static_cast<int>(level));
      CHECK(same_bits(run({level}), everything));
      replanned->replan({level}, replanned->options().loss_chunk);
      CHECK(replanned->slab_bytes() == 0);
      CHECK(same_bits(train_pass(*replanned, batch), everything));
    }
    CHECK_THROWS_AS(replanned->replan(std::vector(7, RecomputeLevel::none), 1), std::invalid_argument);
    if (config.layers == 2) CHECK(same_bits(run({RecomputeLevel::block, RecomputeLevel::ffn}), everything));
    if (config.layers == 5) {
      CHECK(same_bits(run({kLevels[1], kLevels[4], kLevels[0], kLevels[3], kLevels[2]}), everything));
    }
  }
}

void check_accumulation(const at::Device& device) {
  const ModelConfig config = tiny_config();
  const auto model = make_model(config, {device, at::kFloat}, {RecomputeLevel::block});
  const model::Batch first = random_batch(config, 2, 24, device, 1);
  const model::Batch second = random_batch(config, 1, 31, device, 2);
  const Result a = train_pass(*model, first);
  const Result b = train_pass(*model, second);
  model->arena().zero_gradients();
  model->loss(first, scale_for(first)).loss.backward();
  model->loss(second, scale_for(second)).loss.backward();
  for (const auto& [name, gradient] : gradients_of(*model)) {
    INFO(name);
    CHECK(relative_error(gradient, a.gradients.at(name) + b.gradients.at(name)) < 1e-6);
  }
}

void check_tied_gradient(const at::Device& device) {
  ModelConfig config = tiny_config();
  const auto untied = make_model(config, {device, at::kFloat}, {RecomputeLevel::none});
  config.tie_embeddings = true;
  const auto tied = make_model(config, {device, at::kFloat}, {RecomputeLevel::none});
  for (const model::ParameterSlot& slot : untied->arena().slots()) {
    const bool head = slot.spec.name == "head.weight";
    const at::Tensor source =
        tied->arena().weight(tied->arena().slot(head ? "embedding.weight" : slot.spec.name));
    untied->arena().weight(slot).copy_(source);
  }
  const model::Batch batch = random_batch(config, 2, 24, device);
  const Result apart = train_pass(*untied, batch);
  const Result together = train_pass(*tied, batch);
  const at::Tensor sum = apart.gradients.at("embedding.weight") + apart.gradients.at("head.weight");
  CHECK(relative_error(together.gradients.at("embedding.weight"), sum) < 1e-6);
}

void check_documents(const at::Device& device) {
  const ModelConfig config = tiny_config();
  const auto model =
      make_model(config, {device, at::kFloat}, {RecomputeLevel::block}, at::kFloat, /*document_mask=*/true);
  model::Batch batch = random_batch(config, 1, 32, device);
  const std::vector<int32_t> starts{0, 1, 8, 25};
  add_documents(batch, starts);
  const Result together = train_pass(*model, batch);

  const at::Tensor scale = scale_for(batch);
  model->arena().zero_gradients();
  double sum = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t end = i + 1 < starts.size() ? starts[i + 1] : batch.tokens.size(1);
    const auto part = [&](const at::Tensor& t) { return t.slice(1, starts[i], end).contiguous(); };
    const model::Batch document{
        .tokens = part(batch.tokens), .targets = part(batch.targets), .positions = {}, .documents = {}};
    const at::Tensor loss = model->loss(document, scale).loss;
    loss.backward();
    sum += loss.item<double>();
  }
  CHECK(together.loss.item<double>() == Approx(sum / static_cast<double>(counted(batch))).epsilon(1e-6));
  CHECK(relative_error(together.gradients, gradients_of(*model)) < 1e-5);
}

void check_padding_stays_zero(const Where& where) {
  ModelConfig config = tiny_config();
  config.qk_norm = true;
  const auto model = make_model(config, where, {RecomputeLevel::ffn}, where.dtype);
  train_pass(*model, random_batch(config, 2, 24, where.device));
  const model::ParameterArena& arena = model->arena();
  // Sums of magnitudes over whole buffers and over their tensors alone.
  const auto mass = [](const at::Tensor& t) { return t.to(at::kDouble).abs().sum().item<double>(); };
  double weights = 0;
  double low = 0;
  double high = 0;
  for (const model::ParameterSlot& slot : arena.slots()) {
    weights += mass(arena.weight(slot));
    (slot.spec.kind == model::ParameterKind::matrix ? low : high) += mass(arena.gradient(slot));
    CHECK(mass(arena.gradient(slot)) > 0);
  }
  CHECK(mass(arena.weights()) == Approx(weights).epsilon(1e-12));
  CHECK(mass(arena.grad()) == Approx(low).epsilon(1e-12));
  CHECK(mass(arena.grad32()) == Approx(high).epsilon(1e-12));
}

}  // namespace narrowgauge::test
