#include "lib/layout/layout.h"

#include <fmt/format.h>

#include <stdexcept>

namespace narrowgauge::layout {
namespace {

size_t key(Name name, int64_t layer, Phase phase) {
  return static_cast<size_t>(((layer + 1) * kNames + static_cast<int64_t>(name)) * 2 +
                             static_cast<int64_t>(phase));
}

}  // namespace

Layout::Layout(const ModelConfig& model, const StepShape& step)
    : buffers_(record_step(model, step)),
      index_(static_cast<size_t>((model.layers + 1) * kNames * 2), -1),
      bytes_(place(buffers_)),
      peak_(find_peak(buffers_)) {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    int& index = index_.at(key(buffers_[i].name, buffers_[i].layer, buffers_[i].phase));
    if (index >= 0) throw std::logic_error("layout: two buffers of one name, layer and phase");
    index = static_cast<int>(i);
  }
}

const Buffer& Layout::at(Name name, int64_t layer, Phase phase) const {
  const int index = index_.at(key(name, layer, phase));
  if (index < 0) {
    throw std::logic_error(fmt::format("layout: no buffer {} of layer {} in {}", buffer_name(name), layer,
                                       phase == Phase::forward ? "forward" : "backward"));
  }
  return buffers_[static_cast<size_t>(index)];
}

int64_t Layout::kept_bytes(int64_t layer) const {
  int64_t bytes = 0;
  for (const Buffer& buffer : buffers_) {
    if (buffer.layer == layer && buffer.category == Category::saved) bytes += buffer.shape.bytes();
  }
  return bytes;
}

}  // namespace narrowgauge::layout
