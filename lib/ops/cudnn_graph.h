#pragma once
// Causal attention through cuDNN's graph API; no torch here. The library is LibTorch's copy of cuDNN, which
// is in the process before main: it is looked up there by name, and no other copy is ever loaded.
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

// One way of cuDNN's to run a pass. Copies share it. Softmax of causal scores scaled by 1 / sqrt(head_dim),
// fp32 inside, no dropout.
class Plan {
 public:
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] int64_t workspace_bytes() const;

  // Asynchronous on `stream`; allocates no device memory, so that a CUDA graph can capture it (after one run
  // outside, which loads the kernels). Every pointer and the workspace is aligned to 16 bytes. forward: q, k,
  // v, out, lse; backward: q, k, v, out, dout, lse, dq, dk, dv. lse is a contiguous fp32 (sequences, heads,
  // context). Only outputs and the workspace are written.
  void run(std::span<void* const> tensors, void* workspace, cuda::Stream stream) const;

 private:
  friend class Pass;
  struct Impl;
  explicit Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// A pass on the device that is current when it is made, with what cuDNN offers for it. Making one and
// building plans takes up to seconds of host time, launches nothing and throws Refusal.
class Pass {
 public:
  static Pass forward(const Problem& problem);
  // deterministic: two runs give the same bits.
  static Pass backward(const Problem& problem, bool deterministic);

  // The plans (engine and knobs) of cuDNN's heuristics A, B and fallback in that order, each once. Some of
  // them may not build.
  [[nodiscard]] const std::vector<std::string>& plan_names() const;
  [[nodiscard]] Plan build(const std::string& plan_name) const;
  [[nodiscard]] Plan build_first() const;  // that builds

 private:
  struct Impl;
  explicit Pass(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace narrowgauge::ops::cudnn
