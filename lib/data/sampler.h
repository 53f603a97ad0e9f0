#pragma once
#include <cstdint>

namespace narrowgauge::data {

// Which window of the token stream is sample `index` of the run: a pure function of (seed, epoch, index in
// the epoch), so the order depends on nothing else. The stream [begin, end) is cut into windows of context +
// 1 tokens that start every `context` tokens (the last target of one is the first input of the next).
struct SampleRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Windows in `tokens` tokens.
int64_t sample_count(int64_t tokens, int64_t context);

struct TrainValRanges {
  SampleRange train;
  SampleRange val;  // empty when the fraction is 0
};

// Cuts a stream into training and validation: validation is its end, val_fraction of the windows rounded to
// the nearest, but at least one window on either side; the two share no token. val_fraction lies in [0, 1).
// UserError when there are too few tokens.
TrainValRanges split_train_val(int64_t token_count, int64_t context, double val_fraction);

// With shuffle off the samples come in the order of the stream (evaluation).
class Sampler {
 public:
  // The caller guarantees at least one window.
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
// walking (Black and Rogaway 2002), so that no table is built. Integer arithmetic only: the same everywhere.
int64_t permute(int64_t index, int64_t count, uint64_t seed, int64_t epoch);

}  // namespace narrowgauge::data
