#pragma once
#include <string>
#include <vector>

#include "lib/ops/attention.h"

namespace narrowgauge::ops {

// Milliseconds of forward and backward of one micro-batch.
struct AttentionTime {
  AttentionKernel kernel;
  double milliseconds;
};

struct AttentionChoice {
  AttentionKernel kernel;
  std::vector<AttentionTime> times;  // what was compared, the fastest first; empty: nothing to compare
};

// "cudnn", or "cudnn (0.61 ms a layer and micro-batch, flash 1.22 ms)".
std::string describe(const AttentionChoice& choice);

// The kernel for `request` ("auto", "flash", "cudnn", "math") on this device. auto takes the fastest of those
// that can do the job: on CUDA in bf16, where both cuDNN and flash can, the two are timed on random data of
// `shape`, unless choices() has the answer, in force or remembered (then it is put into force); the memory is
// given back. Else flash where the head size allows it, else math; fp32 on CUDA: math; CPU: flash. A request
// that cannot be met throws std::invalid_argument that says why (the caller turns it into a UserError).
//
// `deterministic` is about the backward pass: forward always gives the same bits twice. cuDNN has a
// deterministic backward on some devices. Flash's on CUDA is so only while
// at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false) is in force: the caller sets it
// before this call. Everything else always is.
AttentionChoice choose_attention(const std::string& request, at::Device device, at::ScalarType dtype,
                                 const AttentionShape& shape, bool deterministic, bool document_mask);

}  // namespace narrowgauge::ops
