#pragma once
#include <cstddef>
#include <vector>

#include "lib/layout/buffer.h"

namespace narrowgauge::layout {

// Notes when buffers are opened and closed while somebody walks through a step. Of one name and layer one
// buffer is open at a time. std::logic_error when the walk contradicts itself.
class Recorder {
 public:
  explicit Recorder(int64_t layers);

  void begin_backward() { phase_ = Phase::backward; }
  void open(Name name, int64_t layer, const Shape& shape);
  [[nodiscard]] bool is_open(Name name, int64_t layer) const;
  // After the operation that used it last.
  void close(Name name, int64_t layer);
  // An operation on the open buffers has run.
  void operation() { ++now_; }

  // All buffers in the order of their opening; none may be open.
  std::vector<Buffer> take();

 private:
  [[nodiscard]] size_t key(Name name, int64_t layer) const;

  std::vector<Buffer> buffers_;
  std::vector<int> open_;  // index into buffers_ by layer and name; -1: closed
  Phase phase_ = Phase::forward;
  int64_t now_ = 0;
};

}  // namespace narrowgauge::layout
