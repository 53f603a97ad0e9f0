// cuDNN on the packed rows in place. Backward runs over groups of sequences, or of heads of one sequence,
// that bound its workspace.
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "lib/ops/attention_kernels.h"
#include "lib/ops/cudnn_graph.h"
#include "lib/ops/device.h"

namespace narrowgauge::ops::detail {
namespace {

struct Plans {
  cudnn::Plan forward;
  cudnn::Plan backward;  // of one group
  AttentionShape group;
  int64_t scratch_bytes() const { return std::max(forward.workspace_bytes(), backward.workspace_bytes()); }
};

cudnn::Problem problem_of(const AttentionShape& part, const AttentionShape& whole) {
  return {.sequences = part.batch,
          .context = part.context,
          .heads = part.heads,
          .kv_heads = part.kv_heads,
          .head_dim = part.head_dim,
          .packed_row = (whole.heads + 2 * whole.kv_heads) * whole.head_dim,
          .out_row = whole.heads * whole.head_dim};
}

// The equal parts that s can be cut into, largest first. A part's rows of lse start on 16 bytes.
std::vector<AttentionShape> groups_of(const AttentionShape& s) {
  std::vector<AttentionShape> groups{s};
  const auto add = [&](int64_t batch, int64_t kv_heads) {
    AttentionShape part = s;
    part.batch = batch;
    part.kv_heads = kv_heads;
    part.heads = kv_heads * (s.heads / s.kv_heads);
    if (part.batch * part.heads * part.context % 4 == 0) groups.push_back(part);
  };
  for (int64_t n = s.batch - 1; n >= 1; --n) {
    if (s.batch % n == 0) add(n, s.kv_heads);
  }
  for (int64_t n = s.kv_heads - 1; n >= 1; --n) {
    if (s.kv_heads % n == 0) add(1, n);
  }
  return groups;
}

Plans build(const AttentionShape& s, bool deterministic, int64_t limit) {
  cudnn::Plan forward = cudnn::Plan::forward(problem_of(s, s));
  const std::vector<AttentionShape> groups = groups_of(s);
  double bytes_a_head = 0;  // of the last group tried; the workspace is about proportional to the heads in it
  for (const AttentionShape& group : groups) {
    const bool last = &group == &groups.back();
    const auto heads = static_cast<double>(group.batch * group.heads);
    if (!last && bytes_a_head * heads > static_cast<double>(limit)) continue;
    try {
      cudnn::Plan backward = cudnn::Plan::backward(problem_of(group, s), deterministic);
      const int64_t bytes = backward.workspace_bytes();
      if (last || bytes <= limit)
        return {.forward = std::move(forward), .backward = std::move(backward), .group = group};
      bytes_a_head = static_cast<double>(bytes) / heads;
    } catch (const cudnn::Refusal&) {
      if (last) throw;
    }
  }
  throw std::logic_error("attention: no groups");
}

// Built once per device, shape, determinism and limit, and kept. Throws cudnn::Refusal.
const Plans& plans_for(const AttentionShape& s, bool deterministic, at::Device device, int64_t limit) {
  using Key = std::tuple<int, int64_t, int64_t, int64_t, int64_t, int64_t, bool, int64_t>;
  static auto& mutex = *new std::mutex;  // never destroyed: plans must not outlive the driver
  static auto& built = *new std::map<Key, Plans>;
  const Key key{device.index(), s.batch, s.context, s.heads, s.kv_heads, s.head_dim, deterministic, limit};
  const std::lock_guard lock(mutex);
  const auto found = built.find(key);
  if (found != built.end()) return found->second;
  const c10::DeviceGuard guard(device);
  return built.emplace(key, build(s, deterministic, limit)).first->second;
}

const Plans& checked_plans(const at::Tensor& qkv, const AttentionShape& s, bool deterministic,
                           const at::Tensor& scratch, int64_t limit) {
  TORCH_CHECK(qkv.is_cuda() && qkv.scalar_type() == at::kBFloat16, "cudnn attention needs bf16 on CUDA");
  const Plans& plans = plans_for(s, deterministic, qkv.device(), limit);
  const int64_t bytes = plans.scratch_bytes();
  TORCH_CHECK(bytes == 0 || (scratch.is_contiguous() && scratch.scalar_type() == at::kByte &&
                             scratch.device() == qkv.device() && scratch.numel() >= bytes),
              "attention: the scratch tensor must have ", bytes, " bytes on the tensors' device");
  return plans;
}

// Where heads start in rows of bf16: token `row`, head `head`.
void* head_at(const at::Tensor& rows, int64_t row, int64_t head, int64_t head_dim) {
  return static_cast<c10::BFloat16*>(rows.mutable_data_ptr()) + row * rows.size(1) + head * head_dim;
}

void* scratch_pointer(const at::Tensor& scratch) {
  return scratch.defined() && scratch.numel() > 0 ? scratch.mutable_data_ptr() : nullptr;
}

}  // namespace

std::string cudnn_refusal(const AttentionShape& s, bool deterministic, at::Device device) {
  try {
    plans_for(s, deterministic, device, kCudnnWorkspaceLimit);
    return {};
  } catch (const cudnn::Refusal& refusal) {
    return std::string("cuDNN refuses it") +
           (deterministic ? " with a deterministic backward pass: " : ": ") + refusal.what();
  }
}

int64_t cudnn_scratch_bytes(const AttentionShape& s, bool deterministic, at::Device device, int64_t limit) {
  return plans_for(s, deterministic, device, limit).scratch_bytes();
}

AttentionShape cudnn_backward_group(const AttentionShape& s, bool deterministic, at::Device device,
                                    int64_t limit) {
  return plans_for(s, deterministic, device, limit).group;
}

void cudnn_forward(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& s,
                   bool deterministic, const at::Tensor& scratch) {
  const Plans& plans = checked_plans(qkv, s, deterministic, scratch, kCudnnWorkspaceLimit);
  const c10::DeviceGuard guard(qkv.device());
  const auto head = [&](int64_t first) { return head_at(qkv, 0, first, s.head_dim); };
  void* const tensors[] = {head(0), head(s.heads), head(s.heads + s.kv_heads), result.out.mutable_data_ptr(),
                           result.lse.mutable_data_ptr()};
  plans.forward.run(tensors, scratch_pointer(scratch), current_stream(qkv));
}

void cudnn_backward(const Backward& a, const AttentionShape& s, bool deterministic, const at::Tensor& scratch,
                    int64_t limit) {
  const Plans& plans = checked_plans(a.qkv, s, deterministic, scratch, limit);
  const AttentionShape& group = plans.group;
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
      plans.backward.run(tensors, scratch_pointer(scratch), current_stream(a.qkv));
    }
  }
}

}  // namespace narrowgauge::ops::detail
