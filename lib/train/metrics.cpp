#include "lib/train/metrics.h"

namespace narrowgauge::train {

void Throughput::restart(double now) { ends_.assign(1, {now, 0}); }

void Throughput::add(double now, int64_t tokens) {
  ends_.emplace_back(now, tokens);
  if (ends_.size() > window_ + 1) ends_.pop_front();
}

std::optional<double> Throughput::tokens_per_second() const {
  if (ends_.size() < 2 || ends_.back().first <= ends_.front().first) return std::nullopt;
  int64_t tokens = 0;
  for (size_t i = 1; i < ends_.size(); ++i) tokens += ends_[i].second;
  return static_cast<double>(tokens) / (ends_.back().first - ends_.front().first);
}

std::optional<double> Throughput::seconds_per_step() const {
  if (ends_.size() < 2) return std::nullopt;
  return (ends_.back().first - ends_.front().first) / static_cast<double>(ends_.size() - 1);
}

}  // namespace narrowgauge::train
