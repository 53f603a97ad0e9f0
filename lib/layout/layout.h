#pragma once
#include <vector>

#include "lib/layout/placement.h"
#include "lib/layout/step.h"

namespace narrowgauge::layout {

// A pass on paper: every buffer with its place in one slab.
class Layout {
 public:
  // As record_step.
  Layout(const ModelConfig& model, const StepShape& step);

  // std::logic_error when the pass has no such buffer.
  [[nodiscard]] const Buffer& at(Name name, int64_t layer, Phase phase) const;
  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }  // of the slab
  [[nodiscard]] const Peak& peak() const { return peak_; }
  // Bytes of a layer's buffers that forward leaves for backward.
  [[nodiscard]] int64_t kept_bytes(int64_t layer) const;

 private:
  std::vector<Buffer> buffers_;
  std::vector<int> index_;  // into buffers_, by layer, name and phase; -1: none
  int64_t bytes_;
  Peak peak_;
};

}  // namespace narrowgauge::layout
