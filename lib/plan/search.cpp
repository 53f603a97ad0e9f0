#include "lib/plan/search.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lib/plan/slab_bound.h"

namespace narrowgauge::plan {
namespace {

// The choices with one micro-batch and one loss chunk whose slab may fit, in the order of their time.
class Stream {
 public:
  Stream(const Request& request, const MemoryModel& memory, const TimeModel& time, int64_t micro_batch,
         int64_t loss_chunk, int64_t other_slab)
      : memory_(&memory),
        micro_batch_(micro_batch),
        loss_chunk_(loss_chunk),
        layers_(request.config.model.layers),
        fixed_(fixed_levels(request.config)),
        slab_limit_(request.budget - memory.beside_slab(micro_batch, 0)),
        other_slab_(other_slab),
        base_(time.base(micro_batch, loss_chunk).total()) {
    for (size_t i = 0; i < kLevelCount; ++i) level_[i] = time.level(micro_batch, kLevels[i]).total();
  }

  // Of two streams the one whose next choice comes first; a stream that was not opened may hold anything that
  // takes base_ at least.
  [[nodiscard]] bool precedes(const Stream& other) const {
    if (!opened_ || !other.opened_) {
      const double mine = opened_ ? front().seconds : base_;
      const double theirs = other.opened_ ? other.front().seconds : other.base_;
      return mine != theirs ? mine < theirs : !opened_ && other.opened_;
    }
    return before(front(), other.front(), other);
  }
  [[nodiscard]] bool opened() const { return opened_; }
  [[nodiscard]] bool exhausted() const { return opened_ && heap_.empty(); }

  void open() {
    opened_ = true;
    if (other_slab_ > slab_limit_) return;
    if (!fixed_.empty()) {
      heap_.push_back(node(count_levels(fixed_)));
      return;
    }
    bound_.emplace(*memory_, micro_batch_, loss_chunk_);
    for (int64_t block = 0; block <= layers_; ++block) {
      for (int64_t qkv = 0; block + qkv <= layers_; ++qkv) {
        for (int64_t ffn = 0; block + qkv + ffn <= layers_; ++ffn) add_fastest(ffn, qkv, block);
      }
    }
    std::make_heap(heap_.begin(), heap_.end(), after);
  }

  // The next choice with its real bytes.
  Candidate next() {
    std::pop_heap(heap_.begin(), heap_.end(), after);
    const Node taken = heap_.back();
    heap_.pop_back();
    if (fixed_.empty() && taken.counts[0] > 0) {
      LevelCounts counts = taken.counts;
      --counts[0];
      ++counts[1];
      if (may_fit(counts)) {
        heap_.push_back(node(counts));
        std::push_heap(heap_.begin(), heap_.end(), after);
      }
    }
    Candidate candidate{.choice = {.micro_batch = micro_batch_,
                                   .levels = fixed_.empty() ? sorted_levels(taken.counts) : fixed_,
                                   .loss_chunk = loss_chunk_},
                        .bytes = 0,
                        .seconds = taken.seconds};
    const int64_t slab = std::max(
        other_slab_, layout::Layout(memory_->config().model, memory_->shape(candidate.choice)).bytes());
    candidate.bytes = slab + memory_->beside_slab(micro_batch_, slab);
    return candidate;
  }

 private:
  struct Node {
    double seconds;
    LevelCounts counts;
  };
  static bool after(const Node& a, const Node& b) {
    return a.seconds != b.seconds ? a.seconds > b.seconds : a.counts < b.counts;
  }
  [[nodiscard]] const Node& front() const { return heap_.front(); }
  [[nodiscard]] bool before(const Node& mine, const Node& theirs, const Stream& other) const {
    if (mine.seconds != theirs.seconds) return mine.seconds < theirs.seconds;
    if (loss_chunk_ != other.loss_chunk_) return loss_chunk_ > other.loss_chunk_;
    return micro_batch_ < other.micro_batch_;
  }
  [[nodiscard]] Node node(const LevelCounts& counts) const {
    double seconds = base_;
    for (size_t i = 0; i < kLevelCount; ++i) seconds += static_cast<double>(counts[i]) * level_[i];
    return {.seconds = seconds, .counts = counts};
  }
  [[nodiscard]] bool may_fit(const LevelCounts& counts) const { return bound_->bytes(counts) <= slab_limit_; }

  // With these numbers of layers at the last three levels, the others at none and elementwise: elementwise
  // never needs more and never takes less time, so that the fewest such layers that fit are the fastest
  // choice, and one more of them the next.
  void add_fastest(int64_t ffn, int64_t qkv, int64_t block) {
    const int64_t rest = layers_ - ffn - qkv - block;
    const auto counts = [&](int64_t elementwise) {
      return LevelCounts{rest - elementwise, elementwise, ffn, qkv, block};
    };
    if (!may_fit(counts(rest))) return;
    int64_t least = 0;
    for (int64_t most = rest; least < most;) {
      const int64_t middle = (least + most) / 2;
      if (may_fit(counts(middle))) {
        most = middle;
      } else {
        least = middle + 1;
      }
    }
    heap_.push_back(node(counts(least)));
  }

  const MemoryModel* memory_;
  int64_t micro_batch_;
  int64_t loss_chunk_;
  int64_t layers_;
  std::vector<RecomputeLevel> fixed_;
  int64_t slab_limit_;  // at most
  int64_t other_slab_;
  double base_;
  std::array<double, kLevelCount> level_{};
  std::optional<SlabBound> bound_;
  std::vector<Node> heap_;
  bool opened_ = false;
};

std::vector<int64_t> loss_chunks(const Request& request) {
  return request.loss_chunks.empty() ? std::vector{request.config.memory.loss_chunk} : request.loss_chunks;
}

}  // namespace

bool is_better(const Candidate& a, const Candidate& b) {
  if (a.seconds != b.seconds) return a.seconds < b.seconds;
  if (a.choice.loss_chunk != b.choice.loss_chunk) return a.choice.loss_chunk > b.choice.loss_chunk;
  if (a.choice.micro_batch != b.choice.micro_batch) return a.choice.micro_batch < b.choice.micro_batch;
  return count_levels(a.choice.levels) > count_levels(b.choice.levels);
}

std::vector<int64_t> micro_batches(const Config& config) {
  if (config.train.micro_batch > 0) return {config.train.micro_batch};
  std::vector<int64_t> all;
  const int64_t whole = sequences(config);
  for (int64_t n = 1; n <= whole; ++n) {
    if (whole % n == 0) all.push_back(n);
  }
  return all;
}

std::vector<Candidate> search(const Request& request, const Rates& rates) {
  const MemoryModel memory(request.config, request.surroundings);
  const TimeModel time(request.config, rates);
  std::vector<Stream> streams;
  for (const int64_t chunk : loss_chunks(request)) {
    const int64_t other_slab = memory.other_slab(chunk);
    for (const int64_t micro_batch : micro_batches(request.config)) {
      streams.emplace_back(request, memory, time, micro_batch, chunk, other_slab);
    }
  }
  std::vector<Candidate> found;
  while (found.size() < request.candidates) {
    std::erase_if(streams, [](const Stream& stream) { return stream.exhausted(); });
    if (streams.empty()) break;
    Stream& first = *std::min_element(streams.begin(), streams.end(),
                                      [](const Stream& a, const Stream& b) { return a.precedes(b); });
    if (!first.opened()) {
      first.open();
      continue;
    }
    Candidate candidate = first.next();
    if (candidate.bytes <= request.budget) found.push_back(std::move(candidate));
  }
  return found;
}

Candidate smallest(const Request& request, const Rates& rates) {
  const MemoryModel memory(request.config, request.surroundings);
  const TimeModel time(request.config, rates);
  std::vector<std::vector<RecomputeLevel>> all{fixed_levels(request.config)};
  if (all.front().empty()) {
    all.clear();
    for (const RecomputeLevel level : kLevels) {
      all.emplace_back(static_cast<size_t>(request.config.model.layers), level);
    }
  }
  std::optional<Candidate> least;
  for (const int64_t chunk : loss_chunks(request)) {
    for (const auto& levels : all) {
      Candidate candidate{.choice = {.micro_batch = micro_batches(request.config).front(),
                                     .levels = levels,
                                     .loss_chunk = chunk}};
      candidate.bytes = memory.bytes(candidate.choice);
      candidate.seconds = time.step(candidate.choice).total();
      const bool less = !least || candidate.bytes < least->bytes;
      const bool faster = least && candidate.bytes == least->bytes && is_better(candidate, *least);
      if (less || faster) least = std::move(candidate);
    }
  }
  return *least;
}

}  // namespace narrowgauge::plan
