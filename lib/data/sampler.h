#pragma once
#include <cstdint>

namespace narrowgauge::data {

// Which window of the token stream is sample `index` of the run: a pure function of (seed, epoch, index in the
// epoch), so the order depends on nothing else. The stream [begin, end) is cut into windows of context + 1
// tokens that start every `context` tokens (the last target of one is the first input of the next).
struct SampleRange {
  int64_t begin = 0;
  int64_t end = 0;
};

class Sampler {
 public:
  // UserError-free: the caller guarantees at least one window (sample_count > 0).
  Sampler(SampleRange range, int64_t context, uint64_t seed, bool shuffle);

  [[nodiscard]] int64_t samples_per_epoch() const { return count_; }
  // Stream offset of the first token of global sample number `index` (epoch = index / samples_per_epoch).
  [[nodiscard]] int64_t offset(int64_t index) const;

 private:
  SampleRange range_;
  int64_t context_;
  uint64_t seed_;
  bool shuffle_;
  int64_t count_;
};

// A permutation of [0, count) evaluated at `index`, keyed by (seed, epoch): a Feistel network with cycle
// walking, so that no table is built.
int64_t permute(int64_t index, int64_t count, uint64_t seed, int64_t epoch);

}  // namespace narrowgauge::data
