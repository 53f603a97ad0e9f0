#include "lib/model/slab.h"

#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include <array>
#include <stdexcept>
#include <utility>

namespace narrowgauge::model {
namespace {

at::ScalarType scalar_type(layout::Element element) {
  switch (element) {
    case layout::Element::bf16:
      return at::kBFloat16;
    case layout::Element::fp32:
      return at::kFloat;
    case layout::Element::byte:
      return at::kByte;
  }
  throw std::logic_error("unknown element type");
}

}  // namespace

void Slab::reserve(int64_t bytes) {
  if (bytes <= this->bytes()) return;
  memory_.reset();
  memory_ = at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
}

void Slab::release() {
  memory_.reset();
  layout_.reset();
  ++passes_;
}

int64_t Slab::begin(std::shared_ptr<const layout::Layout> layout) {
  reserve(layout->bytes());
  layout_ = std::move(layout);
  return ++passes_;
}

void Slab::require(int64_t pass) const {
  if (pass != passes_) {
    throw std::logic_error(
        "backward after another pass of the same model has overwritten this one's tensors");
  }
}

at::Tensor Slab::take(layout::Name name, int64_t layer, layout::Phase phase) const {
  const layout::Buffer& buffer = layout_->at(name, layer, phase);
  const layout::Shape& shape = buffer.shape;
  // Not a view in autograd's eyes: a tensor of its own, with its own version, on the same storage.
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(memory_.storage()), memory_.key_set(),
      c10::scalarTypeToTypeMeta(scalar_type(shape.element)));
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_offset(buffer.offset / layout::element_bytes(shape.element));
  const std::array<int64_t, 2> sizes{shape.rows, shape.columns};
  const std::array<int64_t, 2> strides{shape.stride, 1};
  const size_t first = shape.columns == 0 ? 1 : 2;
  impl->set_sizes_and_strides(at::IntArrayRef(sizes.data(), first), at::IntArrayRef(strides.data(), first));
  return tensor;
}

}  // namespace narrowgauge::model
