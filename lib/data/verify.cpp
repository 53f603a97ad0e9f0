#include "lib/data/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/units.h"

namespace narrowgauge::data {
namespace {

constexpr int64_t kMostBytesAtStart = int64_t{8} << 30;  // seconds on an SSD, a minute on a hard disk

int64_t token_bytes_of(const Shard& shard) { return shard.info().count * shard.info().token_bytes; }

void check_ids(const Dataset& dataset, int64_t begin, int64_t end) {
  std::vector<int32_t> ids(1 << 18);
  for (int64_t at = begin; at < end; at += std::ssize(ids)) {
    dataset.read(at, std::min(std::ssize(ids), end - at), ids.data());
  }
}

}  // namespace

Verified verify_contents(const Dataset& dataset, int64_t most_bytes) {
  Verified done;
  int64_t begin = 0;
  for (const auto& shard : dataset.shards()) {
    const int64_t bytes = token_bytes_of(*shard);
    if (bytes > most_bytes - done.bytes) break;
    shard->verify();
    check_ids(dataset, begin, begin + shard->info().count);
    begin += shard->info().count;
    done.bytes += bytes;
    ++done.shards;
  }
  return done;
}

void verify_before_training(const std::string& key, const std::string& pattern, int64_t vocab_size) {
  const auto dataset = Dataset::open(pattern);
  dataset->set_vocab_limit(vocab_size);
  show_status(fmt::format("checking {} ({})", key, pattern));
  const auto start = std::chrono::steady_clock::now();
  const Verified done = verify_contents(*dataset, kMostBytesAtStart);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  show_status("");

  const auto& shards = dataset->shards();
  int64_t bytes = 0;
  for (const auto& shard : shards) bytes += token_bytes_of(*shard);
  const bool sums = std::all_of(shards.begin(), shards.end(), [](const auto& shard) {
    return shard->info().format == ShardFormat::narrowgauge;
  });
  const std::string rest =
      done.bytes == bytes ? ""
                          : fmt::format("; not read: {} shards, {} (narrowgauge prepare --verify reads all)",
                                        std::ssize(shards) - done.shards, format_bytes(bytes - done.bytes));
  log_info(fmt::format("{}: checked {} of {} shards ({} in {}): {}{}", key, done.shards, shards.size(),
                       format_bytes(done.bytes), format_duration(seconds),
                       sums ? "checksums and token ids" : "token ids (foreign formats have no checksums)",
                       rest));
}

}  // namespace narrowgauge::data
