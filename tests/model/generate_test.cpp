#include <ATen/Functions.h>

#include <cmath>

#include "lib/model/generate.h"
#include "lib/model/sampling.h"
#include "tests/model/support.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using namespace narrowgauge::test;

namespace {

const std::vector<int32_t> kPrompt{5, 17, 2, 40, 33};

// Greedy continuation by running the whole window again for every token.
std::vector<int32_t> rerun(model::Transformer& model, std::vector<int32_t> window, int64_t count,
                           size_t limit) {
  std::vector<int32_t> drawn;
  while (static_cast<int64_t>(drawn.size()) < count) {
    if (window.size() > limit) {
      window.erase(window.begin(), window.end() - static_cast<std::ptrdiff_t>(limit / 2 + 1));
    }
    const at::Tensor logits = model.forward(at::tensor(window, at::kInt).unsqueeze(0));
    drawn.push_back(static_cast<int32_t>(logits[-1].argmax().item<int64_t>()));
    window.push_back(drawn.back());
  }
  return drawn;
}

}  // namespace

TEST_CASE("greedy generation with a cache equals running everything again") {
  for (const bool qk_norm : {false, true}) {
    ModelConfig config = tiny_config();
    config.qk_norm = qk_norm;
    const auto model = make_model(config, {}, {RecomputeLevel::none});
    model::SampleOptions options{.max_tokens = 30, .temperature = 0};
    std::vector<int32_t> heard;
    const auto drawn = generate(*model, kPrompt, options, [&](int32_t token) { heard.push_back(token); });
    CHECK(drawn.size() == 30);
    CHECK(drawn == rerun(*model, kPrompt, 30, 128));
    CHECK(heard == drawn);
    CHECK(generate(*model, {7}, options) == rerun(*model, {7}, 30, 128));
  }
}

TEST_CASE("the oldest half goes when the context is full") {
  const ModelConfig config = tiny_config();
  const auto model = make_model(config, {}, {RecomputeLevel::none});
  const model::SampleOptions options{.max_tokens = 200, .temperature = 0};
  CHECK(generate(*model, kPrompt, options) == rerun(*model, kPrompt, 200, 128));
}

TEST_CASE("cached logits equal those of the full forward") {
  const auto model = make_model(tiny_config(), {}, {RecomputeLevel::none});
  const at::Tensor tokens = random_batch(tiny_config(), 1, 20, at::kCPU).tokens;
  const at::Tensor full = model->forward(tokens);
  model::KeyValueCache cache = model->make_cache();
  const at::Tensor prefill = model->decode(tokens.slice(1, 0, 12).flatten(), cache);
  CHECK(relative_error(prefill[0], full[11]) < 1e-5);
  for (int64_t t = 12; t < 20; ++t) {
    CHECK(relative_error(model->decode(tokens.slice(1, t, t + 1).flatten(), cache)[0], full[t]) < 1e-5);
  }
  CHECK(cache.length == 20);
  CHECK_THROWS_AS(model->decode(tokens.flatten(), cache), std::invalid_argument);
}

TEST_CASE("generation is a function of the seed") {
  const auto model = make_model(tiny_config(), {}, {RecomputeLevel::none});
  model::SampleOptions options{.max_tokens = 30, .temperature = 1.5, .seed = 1};
  const auto first = generate(*model, kPrompt, options);
  CHECK(first == generate(*model, kPrompt, options));
  options.seed = 2;
  CHECK(first != generate(*model, kPrompt, options));

  const auto greedy = generate(*model, kPrompt, {.max_tokens = 30, .temperature = 0});
  CHECK(greedy == generate(*model, kPrompt, {.max_tokens = 30, .top_k = 1, .seed = 3}));
  CHECK(greedy == generate(*model, kPrompt, {.max_tokens = 30, .top_p = 1e-9, .seed = 3}));
  CHECK_THROWS_AS(generate(*model, {}, options), std::invalid_argument);
}

TEST_CASE("after an end-of-document token a model with a document mask begins anew") {
  const auto model =
      make_model(tiny_config(), {}, {RecomputeLevel::none}, at::kFloat, /*document_mask=*/true);
  model::SampleOptions options{.max_tokens = 60, .temperature = 0};
  // One in the prompt, and one that is drawn.
  for (const int32_t end : {kPrompt[1], generate(*model, kPrompt, options)[7]}) {
    options.end_of_document = end;
    const auto drawn = generate(*model, kPrompt, options);
    std::vector<int32_t> all = kPrompt;
    all.insert(all.end(), drawn.begin(), drawn.end());
    // The whole text at once under the mask: every drawn token is the likeliest one there.
    std::vector<int32_t> starts{0};
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      if (all[i] == end) starts.push_back(static_cast<int32_t>(i + 1));
    }
    REQUIRE(starts.size() > 1);
    model::Batch batch = {
        .tokens = at::tensor(all, at::kInt).unsqueeze(0), .targets = {}, .positions = {}, .documents = {}};
    add_documents(batch, starts);
    const at::Tensor likeliest = model->forward(batch).argmax(1);
    for (size_t i = 0; i < drawn.size(); ++i) {
      INFO("drawn token " << i);
      CHECK(likeliest[static_cast<int64_t>(kPrompt.size() + i) - 1].item<int64_t>() == drawn[i]);
    }
  }
  options.end_of_document = kPrompt.back();  // the prompt's own document goes on for one token
  const auto open = make_model(tiny_config(), {}, {RecomputeLevel::none});
  CHECK(generate(*model, kPrompt, options)[0] == generate(*open, kPrompt, options)[0]);
  CHECK(generate(*open, kPrompt, options) == rerun(*open, kPrompt, 60, 128));  // no mask: nothing begins anew
}

TEST_CASE("a stop token ends generation") {
  const auto model = make_model(tiny_config(), {}, {RecomputeLevel::none});
  model::SampleOptions options{.max_tokens = 30, .temperature = 0};
  const auto all = generate(*model, kPrompt, options);
  options.stop_token = all[4];
  const auto stopped = generate(*model, kPrompt, options);
  CHECK(stopped.back() == all[4]);
  CHECK(std::count(stopped.begin(), stopped.end(), all[4]) == 1);
}

TEST_CASE("tokens are drawn with their probabilities") {
  const std::vector<float> logits{1.0F, 3.0F, 2.0F, -1.0F, 2.5F};
  const auto shares = [&](model::SampleOptions options) {
    constexpr int kDraws = 40000;
    std::vector<double> share(logits.size());
    for (int i = 0; i < kDraws; ++i) {
      share[static_cast<size_t>(model::draw_token(logits, options, static_cast<uint64_t>(i)))] +=
          1.0 / kDraws;
    }
    return share;
  };
  const auto expected = [&](const std::vector<size_t>& kept, double temperature) {
    std::vector<double> share(logits.size());
    double sum = 0;
    for (const size_t i : kept) sum += share[i] = std::exp(static_cast<double>(logits[i]) / temperature);
    for (double& s : share) s /= sum;
    return share;
  };
  const auto check = [](const std::vector<double>& found, const std::vector<double>& right) {
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(right[i]).margin(0.01));
  };
  check(shares({}), expected({0, 1, 2, 3, 4}, 1.0));
  check(shares({.temperature = 2.0}), expected({0, 1, 2, 3, 4}, 2.0));
  check(shares({.top_k = 2}), expected({1, 4}, 1.0));
  check(shares({.top_p = 0.75}), expected({1, 4}, 1.0));
  check(shares({.top_k = 3, .top_p = 0.99}), expected({1, 2, 4}, 1.0));
}
