#include "lib/plan/memory.h"

#include <algorithm>
#include <random>

#include "lib/plan/attention_scratch.h"
#include "lib/plan/slab_bound.h"
#include "tests/plan/cases.h"
#include "tests/support/catch.h"

namespace narrowgauge::plan {
namespace {

// Bytes of the buffers that are in use at an operation, one by one.
std::array<int64_t, layout::kCategories> in_use(const layout::Layout& pass, int64_t operation) {
  std::array<int64_t, layout::kCategories> used{};
  for (const layout::Buffer& buffer : pass.buffers()) {
    if (buffer.first <= operation && operation <= buffer.last) {
      used[static_cast<size_t>(buffer.category)] += buffer.shape.bytes();
    }
  }
  return used;
}

TEST_CASE("the timeline is what a replay of every buffer finds, and so is its peak") {
  std::mt19937 random(1);
  for (const Config& config : small_configs()) {
    const MemoryModel model(config, on_card("5080"));
    for (int round = 0; round < 10; ++round) {
      Choice choice{.micro_batch = 1 << random() % 4, .levels = {}, .loss_chunk = 128};
      for (int i = 0; i < 4; ++i) choice.levels.push_back(kLevels[random() % kLevelCount]);
      const layout::Layout pass(config.model, model.shape(choice));
      const std::vector<Point> points = model.timeline(choice);
      const MemoryUse use = model.use(choice);
      const int64_t other_scratch = config.data.document_mask || config.train.dtype == "fp32"
                                        ? allocated_scratch(config, choice.micro_batch, 84)
                                        : 0;
      const int64_t pass_end = points.back().operation + 2 - static_cast<int64_t>(use.moments.size());
      int64_t peak = 0;
      for (const Point& point : points) {
        if (point.operation >= pass_end) break;
        const auto used = in_use(pass, point.operation);
        REQUIRE(point.bytes[Kind::saved] == used[0]);
        REQUIRE(point.bytes[Kind::temporary] == used[1]);
        REQUIRE(point.bytes[Kind::loss] == used[2]);
        REQUIRE(point.bytes[Kind::scratch] == used[3] + other_scratch);
        const int64_t sum = used[0] + used[1] + used[2] + used[3];
        REQUIRE(point.bytes[Kind::slab_rest] == use.slab - sum);
        REQUIRE(point.bytes.sum() == use.moments[0].bytes.sum());  // the slab is there all the time
        peak = std::max(peak, sum);
      }
      REQUIRE(peak == pass.peak().bytes);
      REQUIRE(use.moments[0].bytes[Kind::slab_rest] == use.slab - peak);
      for (size_t i = 1; i < use.moments.size(); ++i) {
        const Point& point = points[points.size() - use.moments.size() + i];
        REQUIRE(point.label == use.moments[i].name);
        REQUIRE(point.bytes == use.moments[i].bytes);
      }
      REQUIRE(use.moments[1].bytes[Kind::slab_rest] == use.slab);  // the update
      REQUIRE(std::max_element(points.begin(), points.end(), [](const Point& a, const Point& b) {
                return a.bytes.sum() < b.bytes.sum();
              })->bytes.sum() == use.bytes());
      REQUIRE(use.bytes() == model.bytes(choice));
    }
  }
}

TEST_CASE("operations have the names of what runs") {
  const Config config = small_configs()[0];
  const MemoryModel model(config, on_card("5080"));
  const auto points =
      model.timeline({.micro_batch = 1, .levels = sorted_levels({1, 1, 1, 0, 1}), .loss_chunk = 64});
  std::vector<std::string> labels;
  for (const Point& point : points) {
    if (labels.empty() || labels.back() != point.label) labels.push_back(point.label);
  }
  REQUIRE(labels == std::vector<std::string>{"embedding", "layer 0 forward", "layer 1 forward",
                                             "layer 2 forward", "layer 3 forward", "loss", "layer 3 backward",
                                             "layer 2 backward", "layer 1 backward", "layer 0 backward",
                                             "embedding backward", "update", "evaluation", "checkpoint"});
}

TEST_CASE("the bound on the slab is its peak, whatever the levels") {
  for (const Config& config : small_configs()) {
    const MemoryModel model(config, on_card("H200"));
    for (const int64_t layers : {1, 2, 3, 5, 8}) {
      Config other = config;
      other.model.layers = layers;
      const MemoryModel sized(other, on_card("H200"));
      const SlabBound bound(sized, 2, 100);
      for (const LevelCounts& counts : all_counts(layers)) {
        const Choice choice{.micro_batch = 2, .levels = sorted_levels(counts), .loss_chunk = 100};
        const layout::Layout pass(other.model, sized.shape(choice));
        INFO(levels_text(choice.levels));
        REQUIRE(bound.bytes(counts) == pass.peak().bytes);
        REQUIRE(bound.bytes(counts) <= pass.bytes());
      }
    }
  }
}

// Bytes a token by the table of lib/layout/recompute.h in bf16 without QK-norm.
int64_t table(const ModelConfig& m, RecomputeLevel level) {
  const int64_t H = m.hidden_size;
  const int64_t F = m.ffn_size;
  const int64_t A = m.query_width();
  const int64_t K = m.kv_width();
  const int64_t statistics = 4 * m.heads + 8;
  const std::array<int64_t, kLevelCount> bytes{
      8 * H + 4 * A + 4 * K + 6 * F + statistics, 4 * H + 4 * A + 4 * K + 4 * F + statistics,
      4 * H + 4 * A + 4 * K + statistics, 4 * H + 2 * A + statistics, 2 * H};
  return bytes[static_cast<size_t>(level)];
}

TEST_CASE("another level of one layer changes what is kept by the table's amount") {
  for (const size_t which : {0, 1}) {
    const Config config = small_configs()[which];
    const MemoryModel model(config, on_card("5080"));
    const auto saved_at_loss = [&](const Choice& choice) {
      int64_t saved = -1;
      for (const Point& point : model.timeline(choice)) {
        if (point.label != "loss" || point.bytes[Kind::loss] == 0) continue;
        saved = std::max(saved, point.bytes[Kind::saved]);
      }
      return saved;
    };
    for (size_t layer = 0; layer < 4; ++layer) {
      Choice choice{
          .micro_batch = 2, .levels = {kLevels[4], kLevels[2], kLevels[1], kLevels[0]}, .loss_chunk = 64};
      const int64_t before = saved_at_loss(choice);
      const RecomputeLevel was = choice.levels[layer];
      for (const RecomputeLevel level : kLevels) {
        choice.levels[layer] = level;
        const int64_t tokens = 2 * config.data.context;
        REQUIRE(saved_at_loss(choice) - before ==
                tokens * (table(config.model, level) - table(config.model, was)));
      }
    }
  }
}

TEST_CASE("kept layers last in depth need the least of all orders") {
  for (const Config& config : small_configs()) {
    const MemoryModel model(config, on_card("5080"));
    for (const LevelCounts& counts : all_counts(4)) {
      Choice choice{.micro_batch = 2, .levels = sorted_levels(counts), .loss_chunk = 64};
      const int64_t sorted = layout::Layout(config.model, model.shape(choice)).bytes();
      std::sort(choice.levels.begin(), choice.levels.end());
      do {
        INFO(levels_text(choice.levels) << " against " << levels_text(sorted_levels(counts)));
        REQUIRE(sorted <= layout::Layout(config.model, model.shape(choice)).bytes());
      } while (std::next_permutation(choice.levels.begin(), choice.levels.end()));
    }
  }
}

TEST_CASE("977M parameters on an H200: what was measured") {
  Config config;  // the defaults are that model
  config.train.deterministic = "false";
  const auto reserved = [&] {
    const MemoryUse use = MemoryModel(config, on_card("H200"))
                              .use({.micro_batch = 1,
                                    .levels = std::vector<RecomputeLevel>(24, RecomputeLevel::none),
                                    .loss_chunk = 4096});
    return static_cast<double>(use.bytes() - use.at_peak()[Kind::outside]) / kGibibyte;
  };
  CHECK(std::abs(reserved() - 11.5) < 0.06);  // README, Measured
  config.optim.master = "split";
  CHECK(std::abs(reserved() - 13.3) < 0.06);
}

TEST_CASE("moments beside the training pass") {
  Config config = small_configs()[0];
  config.train.eval_every = 0;
  const Choice choice{.micro_batch = 1, .levels = sorted_levels({0, 0, 0, 0, 4}), .loss_chunk = 64};
  const auto names = [&] {
    std::vector<std::string> all;
    for (const Moment& moment : MemoryModel(config, on_card("5080")).use(choice).moments)
      all.push_back(moment.name);
    return all;
  };
  REQUIRE(names() == std::vector<std::string>{"training pass", "update", "checkpoint"});
  const int64_t alone = MemoryModel(config, on_card("5080")).bytes(choice);
  config.train.eval_every = 5;
  config.train.sample_every = 5;
  REQUIRE(names() ==
          std::vector<std::string>{"training pass", "update", "evaluation", "sample", "checkpoint"});
  const MemoryUse use = MemoryModel(config, on_card("5080")).use(choice);
  REQUIRE(std::string(use.moments[use.peak].name) == "sample");
  const int64_t keys_and_values = 2 * 4 * 128 * 256 * 2;  // two a layer, every position, bf16
  REQUIRE(use.at_peak()[Kind::cache] >= keys_and_values);
  REQUIRE(use.bytes() - alone == use.at_peak()[Kind::cache]);
  // More sequences in an evaluation than in training: the slab is the evaluation's.
  Surroundings many = on_card("5080");
  many.evaluation_sequences = 64;
  REQUIRE(MemoryModel(config, many).use(choice).slab == MemoryModel(config, many).other_slab(64));
  REQUIRE(MemoryModel(config, many).use(choice).slab > use.slab);
}

TEST_CASE("attention's scratch") {
  Config config;
  config.train.deterministic = "true";
  REQUIRE(slab_scratch(config, 1).backward == int64_t{544}
                                                  << 20);  // the default of memory.attention_workspace
  REQUIRE(slab_scratch(config, 4).backward == int64_t{544} << 20);  // a sequence at a time
  config.memory.attention_workspace = int64_t{3 * 544} << 20;
  REQUIRE(slab_scratch(config, 4).backward == int64_t{2 * 544} << 20);  // equal parts: two, not three
  config.memory.attention_workspace = int64_t{128} << 20;
  REQUIRE(slab_scratch(config, 2).backward == int64_t{2 * 34} << 20);  // two heads: four would take 136 MiB
  config.memory.attention_workspace = 0;
  REQUIRE(slab_scratch(config, 2).backward == int64_t{34} << 20);  // one head, whatever it takes
  config.train.deterministic = "false";
  REQUIRE(slab_scratch(config, 2).backward == int64_t{64} << 20);
  REQUIRE(allocated_scratch(config, 2, 84) == 0);
  config.data.document_mask = true;
  REQUIRE(slab_scratch(config, 2).backward == 0);
  REQUIRE(allocated_scratch(config, 2, 84) > int64_t{64} << 20);
  config.train.dtype = "fp32";
  REQUIRE(slab_scratch(config, 2).backward == 0);
  Surroundings asked = on_card("5080");
  asked.attention_scratch = [](int64_t sequences) {
    return AttentionScratch{sequences * 1000, sequences * 2000};
  };
  const layout::StepShape shape = MemoryModel(Config{}, asked).shape({.micro_batch = 3, .levels = {}});
  REQUIRE(shape.attention_scratch == 3000);
  REQUIRE(shape.attention_backward_scratch == 6000);
}

TEST_CASE("a CPU has neither workspaces nor a context") {
  const Config config = small_configs()[0];
  Surroundings cpu;
  const MemoryUse use =
      MemoryModel(config, cpu)
          .use({.micro_batch = 1, .levels = sorted_levels({4, 0, 0, 0, 0}), .loss_chunk = 64});
  for (const Kind kind : {Kind::gemm_workspace, Kind::outside, Kind::rounding, Kind::scratch}) {
    REQUIRE(use.at_peak()[kind] == 0);
  }
}

}  // namespace
}  // namespace narrowgauge::plan
