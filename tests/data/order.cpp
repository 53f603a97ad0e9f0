// The order of samples, and the loader that reads them.
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "lib/data/loader.h"
#include "lib/data/sampler.h"
#include "tests/base/temporary_folder.h"
#include "tests/data/support.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using namespace narrowgauge::data;
using namespace narrowgauge::test;

TEST_CASE("permute is a bijection for every count, seed and epoch") {
  for (int64_t count = 1; count <= 130; ++count) {
    for (uint64_t seed : {0ULL, 1ULL, ~0ULL}) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < count; ++i) seen.insert(permute(i, count, seed, count % 3));
      REQUIRE(static_cast<int64_t>(seen.size()) == count);
      REQUIRE(*seen.begin() == 0);
      REQUIRE(*seen.rbegin() == count - 1);
    }
  }
  for (int64_t count : {1000, 4095, 4096, 4097, 100003}) {
    std::vector<bool> seen(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<size_t>(permute(i, count, 42, 1));
      REQUIRE(!seen[value]);
      seen[value] = true;
    }
  }
  const int64_t huge = (int64_t{1} << 40) + 12345;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t value = permute(i, huge, 3, 0);
    REQUIRE((value >= 0 && value < huge));
  }
}

TEST_CASE("permute spreads, differs by seed and epoch, and never changes") {
  const int64_t count = 10000;
  const auto order = [&](uint64_t seed, int64_t epoch) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(permute(i, count, seed, epoch));
    return values;
  };
  const auto base = order(1, 0);
  for (const auto& other : {order(2, 0), order(1, 1), order(1 + (1ULL << 40), 0), order(0, 1)}) {
    int same = 0;
    for (size_t i = 0; i < other.size(); ++i) same += other[i] == base[i];
    CHECK(same < 20);  // 1 is expected
  }
  // Values of the first hundredth fall evenly into ten parts; neighbours do not stay neighbours.
  std::vector<int> parts(10);
  int neighbours = 0;
  for (size_t i = 0; i < 1000; ++i) {
    ++parts[static_cast<size_t>(base[i] / 1000)];
    neighbours += std::abs(base[i + 1] - base[i]) == 1;
  }
  for (const int part : parts) CHECK(std::abs(part - 100) < 45);
  CHECK(neighbours < 5);
  // Stored orders depend on these numbers: a change would break every resume.
  std::vector<int64_t> first;
  for (int64_t i = 0; i < 6; ++i) first.push_back(permute(i, 100, 1337, 2));
  CHECK(first == std::vector<int64_t>{42, 96, 62, 81, 56, 36});
}

TEST_CASE("samples are windows that start every context tokens") {
  const Sampler plain({10, 10 + 4 * 8 + 1}, 8, 5, false);
  REQUIRE(plain.samples_per_epoch() == 4);
  for (int64_t i = 0; i < 12; ++i) CHECK(plain.offset(i) == 10 + i % 4 * 8);
  CHECK(Sampler({0, 8 * 4}, 8, 5, false).samples_per_epoch() == 3);  // the last target is missing
  CHECK_THROWS_AS(Sampler({0, 8}, 8, 5, false), std::invalid_argument);

  const Sampler shuffled({100, 100 + 1000 * 8 + 1}, 8, 5, true);
  std::vector<int64_t> epochs[2];
  for (int64_t i = 0; i < 2000; ++i) epochs[i / 1000].push_back(shuffled.offset(i));
  CHECK(epochs[0] != epochs[1]);
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (int64_t i = 0; i < 1000; ++i) REQUIRE(epoch[static_cast<size_t>(i)] == 100 + i * 8);
  }
  CHECK(shuffled.offset(7) == 100 + 8 * permute(7, 1000, 5, 0));
}

TEST_CASE("train and validation share no token and both have a window") {
  for (int64_t context : {1, 8, 100}) {
    for (int64_t tokens = 2 * (context + 1); tokens < 2 * (context + 1) + 500; tokens += 7) {
      for (double fraction : {1e-9, 0.01, 0.5, 0.999}) {
        const auto [train, val] = split_train_val(tokens, context, fraction);
        REQUIRE(train.begin == 0);
        REQUIRE(train.end == val.begin);
        REQUIRE(val.end == tokens);
        REQUIRE(sample_count(train.end, context) >= 1);
        REQUIRE(sample_count(val.end - val.begin, context) >= 1);
        REQUIRE((val.end - val.begin) % context == (context == 1 ? 0 : 1));
      }
    }
  }
  const auto split = split_train_val(1001, 10, 0.1);
  CHECK(split.val.end - split.val.begin == 101);
  const auto whole = split_train_val(11, 10, 0);
  CHECK(whole.train.end == 11);
  CHECK(whole.val.begin == whole.val.end);
  CHECK(says(user_error([] { split_train_val(10, 10, 0); }), {"10 tokens", "at least 11", "data.context"}));
  CHECK(says(user_error([] { split_train_val(21, 10, 0.01); }),
             {"21 tokens", "at least 22", "data.val_fraction"}));
}

namespace {

struct Loaded {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

Loaded load_sequences(const std::shared_ptr<const Dataset>& dataset, const Sampler& sampler,
                      LoaderOptions options, int64_t sequences) {
  Loader loader(dataset, sampler, options);
  Loaded out;
  for (int64_t step = options.first_step; step < sequences / options.sequences; ++step) {
    const auto& batch = loader.next();
    REQUIRE(batch.step == step);
    REQUIRE(batch.counted_targets == options.sequences * options.context);
    const auto values = batch.sequences * batch.context;
    out.tokens.insert(out.tokens.end(), batch.tokens, batch.tokens + values);
    out.targets.insert(out.targets.end(), batch.targets, batch.targets + values);
  }
  return out;
}

}  // namespace

TEST_CASE("the loader's order does not depend on batch size, prefetch or resumption") {
  const TemporaryFolder folder;
  std::vector<int32_t> tokens(5000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7919 % 1000);
  write_shards(folder / "d", tokens, {1000, 7, 2}, 333);
  const auto dataset = Dataset::open((folder / "d").string());
  const Sampler sampler({0, dataset->token_count()}, 16, 9, true);

  std::vector<int32_t> expected;
  std::vector<int32_t> expected_targets;
  for (int64_t i = 0; i < 720; ++i) {
    const auto start = tokens.begin() + sampler.offset(i);
    expected.insert(expected.end(), start, start + 16);
    expected_targets.insert(expected_targets.end(), start + 1, start + 17);
  }
  for (int64_t sequences : {1, 2, 8, 24}) {
    for (int64_t prefetch : {0, 1, 2, 7}) {
      LoaderOptions options;
      options.sequences = sequences;
      options.context = 16;
      options.prefetch = prefetch;
      const auto loaded = load_sequences(dataset, sampler, options, 720);
      CHECK(loaded.tokens == expected);
      CHECK(loaded.targets == expected_targets);
    }
  }
  LoaderOptions options;
  options.sequences = 8;
  options.context = 16;
  options.first_step = 33;
  const auto resumed = load_sequences(dataset, sampler, options, 720);
  CHECK(std::equal(resumed.tokens.begin(), resumed.tokens.end(), expected.begin() + 33 * 8 * 16));
}

TEST_CASE("documents restart positions after the end-of-document token") {
  const TemporaryFolder folder;
  write_shards(folder / "d", std::vector<int32_t>{5, 2, 6, 7, 2, 2, 8, 9, 2, 4, 4, 4, 4});
  const auto dataset = Dataset::open((folder / "d").string());
  LoaderOptions options;
  options.sequences = 2;
  options.context = 6;
  options.document_mask = true;
  options.end_of_document = 2;
  Loader loader(dataset, Sampler({0, 13}, 6, 0, false), options);
  const auto& batch = loader.next();
  CHECK(std::vector<int32_t>(batch.tokens, batch.tokens + 12) ==
        std::vector<int32_t>{5, 2, 6, 7, 2, 2, 8, 9, 2, 4, 4, 4});
  CHECK(std::vector<int32_t>(batch.targets, batch.targets + 12) ==
        std::vector<int32_t>{2, 6, 7, 2, 2, 8, 9, 2, 4, 4, 4, 4});
  CHECK(std::vector<int32_t>(batch.positions, batch.positions + 12) ==
        std::vector<int32_t>{0, 1, 0, 1, 2, 0, 0, 1, 2, 0, 1, 2});
  CHECK(batch.document_starts == std::vector<std::vector<int32_t>>{{0, 2, 5}, {0, 3}});
  CHECK(batch.counted_targets == 12);
}

TEST_CASE("the loader uses the allocator for every array, stops cleanly and forwards errors") {
  const TemporaryFolder folder;
  std::vector<int32_t> tokens(400, 5);
  tokens[390] = 999;
  write_shards(folder / "d", tokens);
  write_file(folder / "raw.bin", file_text(folder / "d/shard-000000.ngt").substr(64));
  const auto dataset = Dataset::open((folder / "raw.bin").string());
  dataset->set_vocab_limit(100);
  const Sampler sampler({0, 400}, 10, 0, false);
  LoaderOptions options;
  options.context = 10;
  options.sequences = 3;
  std::atomic<int> live{0};
  int allocations = 0;
  const HostAllocator counted = [&](size_t bytes) {
    CHECK(bytes == 3 * 10 * 4);
    ++allocations;
    ++live;
    auto buffer = plain_host_buffer(bytes);
    return HostBuffer{buffer.data, [&live, release = buffer.release] {
                        --live;
                        release();
                      }};
  };
  for (int repeat = 0; repeat < 50; ++repeat) {
    Loader never_used(dataset, sampler, options, counted);
  }
  CHECK(allocations == 50 * 3 * 2);
  CHECK(live == 0);
  options.document_mask = true;
  { Loader with_positions(dataset, sampler, options, counted); }
  CHECK(allocations == 50 * 3 * 2 + 3 * 3);
  CHECK(live == 0);
  options.document_mask = false;
  const HostAllocator failing = [&](size_t bytes) {
    if (live == 3) throw std::bad_alloc();
    return counted(bytes);
  };
  CHECK_THROWS_AS(Loader(dataset, sampler, options, failing), std::bad_alloc);
  CHECK(live == 0);

  Loader loader(dataset, sampler, options);
  for (int step = 0; step < 12; ++step) CHECK(loader.next().tokens[0] == 5);  // sequences 0..35
  for (int repeat = 0; repeat < 2; ++repeat) {
    CHECK(says(user_error([&] { (void)loader.next(); }), {"raw.bin", "token 390", "999"}));
  }
  CHECK(loader.wait_seconds() >= 0);
}

TEST_CASE("the loader under stress: slow and fast consumers, many loaders") {
  const TemporaryFolder folder;
  std::vector<int32_t> tokens(20001);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 997);
  write_shards(folder / "d", tokens, {1000, 7, 2}, 5000);
  const auto dataset = Dataset::open((folder / "d").string());
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (int id = 0; id < 6; ++id) {
    threads.emplace_back([&, id] {
      const Sampler sampler({0, 20001}, 20, static_cast<uint64_t>(id), true);
      LoaderOptions options;
      options.sequences = 5;
      options.context = 20;
      options.prefetch = id;
      Loader loader(dataset, sampler, options);
      for (int64_t step = 0; step < 600; ++step) {
        const auto& batch = loader.next();
        if (step % 100 == id) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        for (int64_t j = 0; j < 5; ++j) {
          const int64_t start = sampler.offset(step * 5 + j);
          for (int64_t i = 0; i < 20; ++i) {
            wrong += batch.tokens[j * 20 + i] != (start + i) % 997 ||
                     batch.targets[j * 20 + i] != (start + i + 1) % 997;
          }
        }
      }
    });
  }
  threads.clear();
  CHECK(wrong == 0);
}
