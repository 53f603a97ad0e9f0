// cuDNN on the packed rows in place. Backward runs over groups of sequences, or of heads of one sequence,
// that bound its workspace.
#include "lib/ops/attention_cudnn.h"

#include <c10/core/DeviceGuard.h>

#include "lib/ops/attention_kernels.h"
#include "lib/ops/device.h"

namespace narrowgauge::ops::detail {
namespace {

// Where heads start in rows of bf16: token `row`, head `head`.
void* head_at(const at::Tensor& rows, int64_t row, int64_t head, int64_t head_dim) {
  return static_cast<c10::BFloat16*>(rows.mutable_data_ptr()) + row * rows.size(1) + head * head_dim;
}

void* scratch_pointer(const at::Tensor& scratch, int64_t bytes, const at::Tensor& qkv) {
  if (bytes == 0) return nullptr;
  TORCH_CHECK(scratch.defined() && scratch.is_contiguous() && scratch.scalar_type() == at::kByte &&
                  scratch.device() == qkv.device() && scratch.numel() >= bytes,
              "attention: the scratch tensor must have ", bytes, " bytes on the tensors' device");
  return scratch.mutable_data_ptr();
}

}  // namespace

void cudnn_forward(const CudnnSetup& setup, const AttentionResult& result, const at::Tensor& qkv,
                   const AttentionShape& s, const at::Tensor& scratch) {
  const c10::DeviceGuard guard(qkv.device());
  const auto head = [&](int64_t first) { return head_at(qkv, 0, first, s.head_dim); };
  void* const tensors[] = {head(0), head(s.heads), head(s.heads + s.kv_heads), result.out.mutable_data_ptr(),
                           result.lse.mutable_data_ptr()};
  void* const workspace = scratch_pointer(scratch, setup.forward.workspace_bytes(), qkv);
  setup.forward.run(tensors, workspace, current_stream(qkv));
}

void cudnn_backward(const CudnnSetup& setup, const Backward& a, const AttentionShape& s,
                    const at::Tensor& scratch) {
  const AttentionShape& group = setup.group;
  void* const workspace = scratch_pointer(scratch, setup.backward.workspace_bytes(), a.qkv);
  const c10::DeviceGuard guard(a.qkv.device());
  float* const all_lse = a.forward.lse.mutable_data_ptr<float>();
  for (int64_t sequence = 0; sequence < s.batch; sequence += group.batch) {
    for (int64_t kv_head = 0; kv_head < s.kv_heads; kv_head += group.kv_heads) {
      const int64_t query_head = kv_head * (s.heads / s.kv_heads);
      const auto head = [&](const at::Tensor& rows, int64_t first) {
        return head_at(rows, sequence * s.context, first, s.head_dim);
      };
      const int64_t key = s.heads + kv_head;
      const int64_t value = key + s.kv_heads;
      void* const tensors[] = {
          head(a.qkv, query_head),  head(a.qkv, key),
          head(a.qkv, value),       head(a.forward.out, query_head),
          head(a.dout, query_head), all_lse + (sequence * s.heads + query_head) * s.context,
          head(a.dqkv, query_head), head(a.dqkv, key),
          head(a.dqkv, value)};
      setup.backward.run(tensors, workspace, current_stream(a.qkv));
    }
  }
}

}  // namespace narrowgauge::ops::detail
