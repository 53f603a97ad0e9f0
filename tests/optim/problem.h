#pragma once
// Flat buffers with every kind of range, and gradients for them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "lib/optim/master.h"
#include "lib/optim/optimizer.h"
#include "tests/support/random.h"

namespace narrowgauge::test {

// Matrices, an embedding and norms of the given sizes, each padded to 256.
struct Sizes {
  int64_t matrix;
  int64_t embedding;
  int64_t norm;
};

inline int64_t padded(int64_t n) { return (n + 255) / 256 * 256; }

inline optim::FlatBuffers make_buffers(const Sizes& sizes, const OptimConfig& config, at::ScalarType weights,
                                       at::ScalarType grad, at::Device device) {
  Random random(device, at::kFloat, 3);
  const int64_t matrix = padded(sizes.matrix);
  const int64_t embedding = padded(sizes.embedding);
  const int64_t norm = padded(sizes.norm);
  const std::vector<layout::TensorSlot> slots = {{0, 0, sizes.matrix, false, false},
                                                 {matrix, 0, sizes.embedding, true, false},
                                                 {matrix + embedding, embedding, sizes.norm, false, true}};
  optim::FlatBuffers buffers;
  buffers.weights = at::zeros({matrix + embedding + norm}, at::TensorOptions(weights).device(device));
  buffers.grad = at::zeros({matrix}, at::TensorOptions(grad).device(device));
  buffers.grad32 = at::zeros({embedding + norm}, at::TensorOptions(at::kFloat).device(device));
  buffers.ranges = layout::make_update_ranges(slots, config);
  for (const layout::TensorSlot& slot : slots) {
    buffers.weights.narrow(0, slot.offset, slot.count).copy_(random({slot.count}));
  }
  return buffers;
}

// Gradients whose sizes differ by up to six decades from element to element; padding stays zero.
inline void random_gradients(const optim::FlatBuffers& buffers, const Sizes& sizes, uint64_t seed) {
  Random random(at::kCPU, at::kFloat, seed);  // exp has other bits on a card
  const auto fill = [&](const at::Tensor& to) {
    to.copy_(random({to.numel()}).mul_(random({to.numel()}).mul_(2.0).exp_()));
  };
  fill(buffers.grad.narrow(0, 0, sizes.matrix));
  fill(buffers.grad32.narrow(0, 0, sizes.embedding));
  fill(buffers.grad32.narrow(0, padded(sizes.embedding), sizes.norm));
}

// Bits, so that NaNs and the signs of zeros count.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 || a.cpu().view(at::kByte).equal(b.cpu().view(at::kByte)));
}

inline cuda::StepInput step_input(double lr, uint64_t step) {
  return {.learning_rate = static_cast<float>(lr), .inverse_tokens = 1, .seed = 11, .step = step};
}

// The fp32 master of every weight, on the CPU, or the weights themselves widened.
inline at::Tensor master_weights(const optim::FlatBuffers& buffers, const optim::Optimizer& optimizer) {
  for (const auto& [name, tensor] : optimizer.state_tensors()) {
    if (name == optim::kMasterName) return tensor.cpu().clone();
    if (name == optim::kRemainderName) return optim::join_masters(buffers.weights.cpu(), tensor.cpu());
  }
  return buffers.weights.cpu().to(at::kFloat, false, /*copy=*/true);
}

// Everything that a step may change.
struct Snapshot {
  std::vector<at::Tensor> tensors;

  Snapshot(const optim::FlatBuffers& buffers, const optim::Optimizer& optimizer) {
    tensors.push_back(buffers.weights.clone());
    for (const auto& [name, tensor] : optimizer.state_tensors()) tensors.push_back(tensor.clone());
  }
  bool operator==(const Snapshot& other) const {
    bool same = tensors.size() == other.tensors.size();
    for (size_t i = 0; same && i < tensors.size(); ++i) same = same_bits(tensors[i], other.tensors[i]);
    return same;
  }
};

}  // namespace narrowgauge::test
