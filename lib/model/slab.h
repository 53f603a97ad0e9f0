#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "lib/layout/layout.h"

namespace narrowgauge::model {

// The memory of one pass at a time: kept tensors, temporaries, loss and workspaces, as a layout places them.
// Grows when a pass needs more than there is; shrinks only by release().
class Slab {
 public:
  explicit Slab(at::Device device) : device_(device) {}

  // Allocates at least that many bytes. Tensors of earlier passes then belong to the old memory.
  void reserve(int64_t bytes);
  // Gives the memory up, and with it the tensors of the latest pass.
  void release();
  [[nodiscard]] int64_t bytes() const { return memory_.defined() ? memory_.numel() : 0; }
  [[nodiscard]] at::Tensor memory() const { return memory_; }
  [[nodiscard]] const void* address() const { return memory_.defined() ? memory_.const_data_ptr() : nullptr; }

  // Begins a pass: from now on the tensors of earlier ones are overwritten. Returns the pass's number.
  int64_t begin(std::shared_ptr<const layout::Layout> layout);
  // std::logic_error unless `pass` is the latest.
  void require(int64_t pass) const;

  // A buffer of the latest pass, uninitialised unless it was taken and written before. Tensors share nothing
  // but the memory: autograd sees no relation between them.
  [[nodiscard]] at::Tensor take(layout::Name name, int64_t layer, layout::Phase phase) const;

 private:
  at::Device device_;
  at::Tensor memory_;  // bytes
  std::shared_ptr<const layout::Layout> layout_;
  int64_t passes_ = 0;
};

}  // namespace narrowgauge::model
