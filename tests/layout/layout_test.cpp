#include "lib/layout/layout.h"

#include <chrono>
#include <stdexcept>

#include "lib/layout/parameters.h"
#include "lib/layout/static_bytes.h"
#include "tests/support/catch.h"

namespace narrowgauge::test {
namespace {

using layout::Category;
using layout::Element;
using layout::Layout;
using layout::Name;
using layout::Phase;
using layout::Purpose;
using layout::StepShape;

constexpr RecomputeLevel kLevels[] = {RecomputeLevel::none, RecomputeLevel::elementwise, RecomputeLevel::ffn,
                                      RecomputeLevel::ffn_qkv, RecomputeLevel::block};

// Plain, grouped-query, an explicit head_dim and both with QK-norm.
std::vector<ModelConfig> variants() {
  std::vector<ModelConfig> all(5);
  for (ModelConfig& model : all) model.layers = 7;
  all[1].kv_heads = 4;
  all[2].head_dim = 64;
  all[3].qk_norm = true;
  all[4].kv_heads = 2;
  all[4].head_dim = 96;
  all[4].qk_norm = true;
  return all;
}

// 124M, 977M, 1.5B.
std::vector<ModelConfig> real_models() {
  std::vector<ModelConfig> all(3);
  all[0].layers = 12;
  all[0].hidden_size = 768;
  all[0].heads = 12;
  all[0].ffn_size = 2048;
  all[0].vocab_size = 50257;
  all[2].layers = 28;
  all[2].hidden_size = 2048;
  all[2].ffn_size = 5632;
  all[2].kv_heads = 4;
  all[2].qk_norm = true;
  return all;
}

StepShape train_shape(const ModelConfig& model, RecomputeLevel level, int64_t batch, int64_t context) {
  return {.purpose = Purpose::train,
          .batch = batch,
          .context = context,
          .levels = std::vector<RecomputeLevel>(static_cast<size_t>(model.layers), level),
          .element = Element::bf16,
          .loss_chunk = 4096,
          .attention_scratch = 0,
          .attention_backward_scratch = 0,
          .limits = std::nullopt};
}

// Bytes a token of design's table, for elements of `bytes`.
int64_t table(const ModelConfig& m, RecomputeLevel level, int64_t bytes) {
  const int64_t H = m.hidden_size;
  const int64_t F = m.ffn_size;
  const int64_t A = m.query_width();
  const int64_t K = m.kv_width();
  const int64_t statistics = 4 * m.heads + 8;
  switch (level) {
    case RecomputeLevel::none:
      return bytes * (4 * H + 2 * A + 2 * K + 3 * F) + statistics +
             (m.qk_norm ? bytes * (A + K) + 4 * (m.heads + m.kv_head_count()) : 0);
    case RecomputeLevel::elementwise:
      return bytes * (2 * H + 2 * A + 2 * K + 2 * F) + statistics;
    case RecomputeLevel::ffn:
      return bytes * (2 * H + 2 * A + 2 * K) + statistics;
    case RecomputeLevel::ffn_qkv:
      return bytes * (2 * H + A) + statistics;
    case RecomputeLevel::block:
      return bytes * H;
  }
  return -1;
}

void require_sound(const Layout& layout) {
  const auto& buffers = layout.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    const layout::Buffer& a = buffers[i];
    REQUIRE(a.offset % layout::kAlignment == 0);
    REQUIRE(a.offset + a.shape.bytes() <= layout.bytes());
    for (size_t j = 0; j < i; ++j) {
      const layout::Buffer& b = buffers[j];
      if (a.first > b.last || b.first > a.last) continue;
      const bool apart = a.offset + a.shape.bytes() <= b.offset || b.offset + b.shape.bytes() <= a.offset;
      if (!apart) FAIL(buffer_name(a.name) << " of " << a.layer << " meets " << buffer_name(b.name));
    }
  }
}

TEST_CASE("a layer keeps the bytes of the table") {
  for (const ModelConfig& model : variants()) {
    for (const Element element : {Element::bf16, Element::fp32}) {
      StepShape step = train_shape(model, RecomputeLevel::none, 2, 96);
      step.element = element;
      step.levels = {RecomputeLevel::block, RecomputeLevel::ffn,   RecomputeLevel::none,
                     RecomputeLevel::ffn,   RecomputeLevel::block, RecomputeLevel::ffn_qkv,
                     RecomputeLevel::none};
      std::vector<std::vector<RecomputeLevel>> choices{step.levels};
      for (const RecomputeLevel level : kLevels) choices.emplace_back(7, level);
      for (const auto& levels : choices) {
        step.levels = levels;
        const Layout layout(model, step);
        for (int64_t i = 0; i < model.layers; ++i) {
          const RecomputeLevel level = levels[static_cast<size_t>(i)];
          INFO("level " << recompute_name(level) << " of layer " << i << ", kv_heads " << model.kv_heads);
          REQUIRE(layout.kept_bytes(i) == step.tokens() * table(model, level, element_bytes(element)));
        }
      }
    }
  }
  const Layout layout(ModelConfig{}, train_shape(ModelConfig{}, RecomputeLevel::none, 1, 1));
  REQUIRE(layout.kept_bytes(3) == 57160);  // of the 977M model
}

TEST_CASE("buffers in use at once never meet, and the slab is near the largest sum of them") {
  for (const ModelConfig& model : real_models()) {
    for (const int64_t batch : {1, 2, 4}) {
      for (size_t mix = 0; mix < 8; ++mix) {
        StepShape step = train_shape(model, kLevels[mix % 5], batch, 2048);
        if (mix >= 5) {  // kept layers last in depth
          const auto kept = static_cast<std::ptrdiff_t>(model.layers / 3);
          std::fill(step.levels.begin(), step.levels.begin() + kept, RecomputeLevel::block);
          std::fill(step.levels.end() - kept, step.levels.end(), kLevels[mix - 5]);
        }
        step.attention_scratch = mix % 2 == 0 ? 0 : int64_t{1} << 20;
        step.attention_backward_scratch = mix % 2 == 0 ? 0 : int64_t{128} << 20;
        if (mix % 3 == 0) step.limits = cuda::kRtx5080Limits;
        const Layout layout(model, step);
        INFO("layers " << model.layers << ", batch " << batch << ", mix " << mix << ": slab "
                       << layout.bytes() << ", peak " << layout.peak().bytes);
        require_sound(layout);
        CHECK(static_cast<double>(layout.bytes()) <= 1.02 * static_cast<double>(layout.peak().bytes));
        CHECK(layout.bytes() >= layout.peak().bytes);
        int64_t sum = 0;
        for (const int64_t bytes : layout.peak().by_category) sum += bytes;
        CHECK(sum == layout.peak().bytes);
      }
    }
  }
}

TEST_CASE("passes without gradients keep nothing") {
  for (const ModelConfig& model : variants()) {
    for (const Purpose purpose : {Purpose::evaluate, Purpose::generate}) {
      StepShape step = train_shape(model, RecomputeLevel::none, 1, 128);
      step.purpose = purpose;
      const Layout layout(model, step);
      require_sound(layout);
      for (const auto& buffer : layout.buffers()) REQUIRE(buffer.category != Category::saved);
      step.purpose = Purpose::train;
      REQUIRE(layout.bytes() < Layout(model, step).bytes());
    }
    StepShape one = train_shape(model, RecomputeLevel::none, 1, 1);
    one.purpose = Purpose::generate;
    require_sound(Layout(model, one));
  }
}

TEST_CASE("buffers by name") {
  ModelConfig model;
  model.layers = 2;
  model.vocab_size = 50257;
  StepShape step = train_shape(model, RecomputeLevel::block, 1, 8);
  const Layout layout(model, step);
  const layout::Buffer& qkv = layout.at(Name::qkv, 1, Phase::forward);
  REQUIRE(qkv.shape.rows == 8);
  REQUIRE(qkv.shape.columns == 3 * 1792);
  REQUIRE(layout.at(Name::qkv, 1, Phase::backward).first > qkv.last);
  REQUIRE(layout.at(Name::logits, layout::kNoLayer, Phase::forward).shape.stride == 50264);
  REQUIRE(layout.at(Name::lse, 0, Phase::forward).shape.columns == 0);
  REQUIRE_THROWS_AS(layout.at(Name::qk_raw, 1, Phase::forward), std::logic_error);
  step.levels.pop_back();
  REQUIRE_THROWS_AS(Layout(model, step), std::invalid_argument);
}

TEST_CASE("a hundred layers are laid out at once") {
  ModelConfig model;
  model.layers = 100;
  model.qk_norm = true;
  StepShape step = train_shape(model, RecomputeLevel::none, 1, 4096);
  for (size_t i = 0; i < step.levels.size(); ++i) step.levels[i] = kLevels[i % 5];
  const auto begin = std::chrono::steady_clock::now();
  const Layout layout(model, step);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  INFO(layout.buffers().size() << " buffers, slab " << layout.bytes() << ", peak " << layout.peak().bytes);
  CHECK(seconds.count() < 0.2);
}

TEST_CASE("static bytes") {
  const ModelConfig model;  // 977M
  OptimConfig optim;
  const auto bytes = [&] { return layout::static_bytes(model, optim, Element::bf16, Element::bf16); };
  const int64_t embedding = model.vocab_size * model.hidden_size;
  const int64_t norms = (2 * model.layers + 1) * model.hidden_size;
  const int64_t matrices = model.parameter_count() - embedding - norms;
  REQUIRE(bytes().weights == 2 * model.parameter_count());
  REQUIRE(bytes().all_gradients() == 2 * matrices + 4 * (embedding + norms));
  REQUIRE(bytes().optimizer() == matrices * 2 + matrices / 32 + 8 * (embedding + norms));
  optim.master = "split";
  REQUIRE(bytes().master == 2 * model.parameter_count());
  optim.master = "fp32";
  REQUIRE(bytes().master == 4 * model.parameter_count());
  REQUIRE(layout::static_bytes(model, optim, Element::fp32, Element::fp32).master == 0);
}

TEST_CASE("a forward-only pass has no scratch of attention's backward") {
  const ModelConfig model = variants()[0];
  StepShape step = train_shape(model, RecomputeLevel::none, 1, 512);
  step.attention_scratch = 1 << 10;
  const auto bytes = [&](Purpose purpose, int64_t backward) {
    step.purpose = purpose;
    step.attention_backward_scratch = backward;
    return Layout(model, step).bytes();
  };
  const int64_t much = int64_t{1} << 30;
  CHECK(bytes(Purpose::train, much) >= much);
  for (const Purpose purpose : {Purpose::evaluate, Purpose::generate}) {
    CHECK(bytes(purpose, much) == bytes(purpose, 0));
    CHECK(bytes(purpose, much) < much);
  }
}

}  // namespace
}  // namespace narrowgauge::test
