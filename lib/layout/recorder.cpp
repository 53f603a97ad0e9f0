#include "lib/layout/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace narrowgauge::layout {
namespace {

[[noreturn]] void contradiction(const char* what, Name name, int64_t layer) {
  throw std::logic_error(fmt::format("layout: {} of layer {} {}", buffer_name(name), layer, what));
}

Category category_of(Name name) {
  switch (name) {
    case Name::attention_scratch:
    case Name::attention_backward_scratch:
    case Name::norm_scratch:
      return Category::workspace;
    case Name::losses:
    case Name::loss_lse:
    case Name::loss_sums:
    case Name::logits:
      return Category::loss;
    default:
      return Category::temporary;
  }
}

}  // namespace

Recorder::Recorder(int64_t layers) : open_(static_cast<size_t>((layers + 1) * kNames), -1) {}

size_t Recorder::key(Name name, int64_t layer) const {
  return static_cast<size_t>((layer + 1) * kNames + static_cast<int64_t>(name));
}

void Recorder::open(Name name, int64_t layer, const Shape& shape) {
  int& index = open_.at(key(name, layer));
  if (index >= 0) contradiction("is opened twice", name, layer);
  index = static_cast<int>(buffers_.size());
  buffers_.push_back({.name = name,
                      .layer = layer,
                      .phase = phase_,
                      .shape = shape,
                      .category = category_of(name),
                      .first = now_,
                      .last = -1});
}

bool Recorder::is_open(Name name, int64_t layer) const { return open_.at(key(name, layer)) >= 0; }

void Recorder::close(Name name, int64_t layer) {
  int& index = open_.at(key(name, layer));
  if (index < 0) contradiction("is closed but not open", name, layer);
  Buffer& buffer = buffers_[static_cast<size_t>(std::exchange(index, -1))];
  buffer.last = now_ - 1;
  if (buffer.last < buffer.first) contradiction("is used by no operation", name, layer);
  if (buffer.category == Category::temporary && buffer.phase != phase_) buffer.category = Category::saved;
}

std::vector<Buffer> Recorder::take() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.last < 0) contradiction("is never closed", buffer.name, buffer.layer);
  }
  return std::exchange(buffers_, {});
}

}  // namespace narrowgauge::layout
