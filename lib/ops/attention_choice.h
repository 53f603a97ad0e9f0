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

// What attention is asked to do.
struct AttentionJob {
  at::Device device;
  at::ScalarType dtype;
  AttentionShape shape;
  bool deterministic = false;  // backward gives the same bits twice
  bool document_mask = false;
  int64_t workspace_limit = kAttentionWorkspace;  // as in Attention
  // false: nothing is timed, and what choices() does not know is done by flash where that can, by cuDNN's
  // first plans where it is asked for.
  bool timing = true;
};

struct AttentionChoice {
  AttentionKernel kernel;
  std::vector<AttentionTime> times;  // what was compared, the fastest first; empty: nothing to compare
};

// "cudnn", or "cudnn (0.61 ms a layer and micro-batch, flash 1.22 ms)".
std::string describe(const AttentionChoice& choice);

// The kernel for `request` ("auto", "flash", "cudnn", "math"). auto takes the fastest of those that can do
// the job: on CUDA in bf16, where both cuDNN and flash can, the two are timed on random data, and before that
// the ways that cuDNN has (tune_cudnn of attention_cudnn.h, for "cudnn" too), unless choices() has the
// answer, in force or remembered (then it is put into force); the memory is given back. Else flash where the
// head size allows it, else math; fp32 on CUDA: math; CPU: flash. A request that cannot be met throws
// std::invalid_argument that says why (the caller turns it into a UserError).
//
// AttentionJob::deterministic is about the backward pass: forward always gives the same bits twice. cuDNN has
// a deterministic backward on some devices. Flash's on CUDA is so only while
// at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false) is in force: the caller sets it
// before this call. Everything else always is.
AttentionChoice choose_attention(const std::string& request, const AttentionJob& job);

// Milliseconds that forward and backward of a job take by the kernel that choose_attention() gives: timed
// unless choices() knows. Throws as that does.
double attention_milliseconds(const std::string& request, const AttentionJob& job);

// What runs a job of another shape than the kernel was chosen for: `chosen` if it can, else flash, else math.
// Nothing is timed; the first call for a shape may plan, as attention_scratch_bytes does.
AttentionKernel usable_kernel(AttentionKernel chosen, const AttentionJob& job);

}  // namespace narrowgauge::ops
