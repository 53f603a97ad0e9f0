#pragma once
// Causal attention through cuDNN's graph API; no torch here. The library is LibTorch's copy of cuDNN, which
// is in the process before main: it is looked up there by name, and no other copy is ever loaded.
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

#include "cuda/stream.h"

namespace narrowgauge::ops::cudnn {

// cuDNN does not do this on the device or in its version; what() is its reason.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// bf16 heads of `sequences` sequences inside packed rows that may hold more of them.
struct Problem {
  int64_t sequences;
  int64_t context;
  int64_t heads;
  int64_t kv_heads;  // divides heads
  int64_t head_dim;
  int64_t packed_row;  // elements from one token to the next in q, k, v and their gradients
  int64_t out_row;     // the same in out and dout
};

// A planned pass on the device that was current when it was built. Softmax of causal scores scaled by
// 1 / sqrt(head_dim), fp32 inside, no dropout. Building takes up to seconds of host time, launches nothing
// and throws Refusal.
class Plan {
 public:
  static Plan forward(const Problem& problem);
  // deterministic: two runs give the same bits.
  static Plan backward(const Problem& problem, bool deterministic);
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  [[nodiscard]] int64_t workspace_bytes() const;

  // Asynchronous on `stream`; allocates no device memory, so that a CUDA graph can capture it (after one run
  // outside, which loads the kernels). Every pointer and the workspace is aligned to 16 bytes. forward: q, k,
  // v, out, lse; backward: q, k, v, out, dout, lse, dq, dk, dv. lse is a contiguous fp32 (sequences, heads,
  // context). Only outputs and the workspace are written.
  void run(std::span<void* const> tensors, void* workspace, cuda::Stream stream) const;

 private:
  struct Impl;
  explicit Plan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace narrowgauge::ops::cudnn
