#include "lib/ops/attention.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <stdexcept>

#include "lib/ops/attention_kernels.h"
#include "lib/ops/device.h"

namespace narrowgauge::ops {
namespace {

void check(const at::Tensor& packed, const AttentionShape& s, const Documents& documents,
           AttentionKernel kernel) {
  TORCH_CHECK(s.heads >= 1 && s.kv_heads >= 1 && s.heads % s.kv_heads == 0,
              "attention: heads must be a multiple of kv_heads");
  TORCH_CHECK(packed.dim() == 2 && packed.is_contiguous() && packed.size(0) == s.batch * s.context &&
                  packed.size(1) == (s.heads + 2 * s.kv_heads) * s.head_dim,
              "attention: packed rows must be a contiguous (batch * context, (heads + 2 kv_heads) head_dim)");
  if (!documents.cu_seqlens.defined()) return;
  TORCH_CHECK(documents.cu_seqlens.dim() == 1 && documents.cu_seqlens.scalar_type() == at::kInt &&
                  documents.cu_seqlens.is_contiguous() && documents.cu_seqlens.device() == packed.device(),
              "attention: cu_seqlens must be contiguous int32 on the tensors' device");
  if (kernel == AttentionKernel::cudnn) throw std::invalid_argument("cudnn attention has no document mask");
}

void check_result(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& s) {
  TORCH_CHECK(result.out.is_contiguous() && result.out.dim() == 2 && result.out.size(0) == qkv.size(0) &&
                  result.out.size(1) == s.heads * s.head_dim && result.out.scalar_type() == qkv.scalar_type(),
              "attention: out must be a contiguous (tokens, heads * head_dim) of qkv's dtype");
  TORCH_CHECK(result.lse.is_contiguous() && result.lse.dim() == 1 &&
                  result.lse.size(0) == qkv.size(0) * s.heads && result.lse.scalar_type() == at::kFloat,
              "attention: lse must be a contiguous fp32 (tokens * heads)");
}

// A context of one token has one-token documents whatever the boundaries say.
Documents effective(const Documents& documents, const AttentionShape& shape) {
  return shape.context > 1 ? documents : Documents{};
}

// Why `kernel` cannot do the job; empty when it can.
std::string refusal(AttentionKernel kernel, at::Device device, at::ScalarType dtype,
                    const AttentionShape& shape, bool deterministic, bool document_mask) {
  if (kernel == AttentionKernel::math) return {};
  if (device.is_cpu()) return kernel == AttentionKernel::flash ? "" : "it needs a CUDA device";
  if (dtype != at::kBFloat16) return "on CUDA it needs bf16";
  const int64_t limit = kernel == AttentionKernel::flash ? 256 : 128;
  if (shape.head_dim % 8 != 0 || shape.head_dim > limit) {
    return "it needs a head_dim that is a multiple of 8 and at most " + std::to_string(limit) + ", not " +
           std::to_string(shape.head_dim);
  }
  if (kernel == AttentionKernel::flash) return {};
  if (deterministic) return "its backward pass is not deterministic";
  if (document_mask) return "it has no document mask";
  if (shape.context < 2) return "it needs a context of at least 2";
  return {};
}

AttentionKernel automatic(at::Device device, at::ScalarType dtype, const AttentionShape& shape,
                          bool deterministic, bool document_mask) {
  const auto able = [&](AttentionKernel kernel) {
    return refusal(kernel, device, dtype, shape, deterministic, document_mask).empty();
  };
  if (device.is_cuda() && able(AttentionKernel::cudnn)) {
    const int major = limits_of(at::empty({0}, at::TensorOptions(device))).compute_major;
    if (major == 9 || major == 10) return AttentionKernel::cudnn;
  }
  return able(AttentionKernel::flash) ? AttentionKernel::flash : AttentionKernel::math;
}

}  // namespace

const char* attention_kernel_name(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::flash:
      return "flash";
    case AttentionKernel::cudnn:
      return "cudnn";
    case AttentionKernel::math:
      return "math";
  }
  throw std::logic_error("unknown attention kernel");
}

AttentionKernel choose_attention(const std::string& request, at::Device device, at::ScalarType dtype,
                                 const AttentionShape& shape, bool deterministic, bool document_mask) {
  if (request == "auto") return automatic(device, dtype, shape, deterministic, document_mask);
  for (const auto kernel : {AttentionKernel::flash, AttentionKernel::cudnn, AttentionKernel::math}) {
    if (request != attention_kernel_name(kernel)) continue;
    const std::string why = refusal(kernel, device, dtype, shape, deterministic, document_mask);
    if (!why.empty()) throw std::invalid_argument(request + " attention cannot be used here: " + why);
    return kernel;
  }
  throw std::invalid_argument("unknown attention kernel '" + request + "' (auto, flash, cudnn or math)");
}

int64_t attention_scratch_bytes(const Attention& /*attention*/, at::Device /*device*/) { return 0; }

void attention_forward(const AttentionResult& result, const at::Tensor& qkv, const Attention& attention,
                       const at::Tensor& /*scratch*/) {
  const c10::NoGradGuard no_grad;
  const AttentionShape& s = attention.shape;
  check(qkv, s, attention.documents, attention.kernel);
  check_result(result, qkv, s);
  if (qkv.numel() == 0) return;
  const Documents docs = effective(attention.documents, s);
  switch (attention.kernel) {
    case AttentionKernel::flash:
      return qkv.is_cuda() ? detail::flash_cuda_forward(result, qkv, s, docs)
                           : detail::flash_cpu_forward(result, qkv, s, docs);
    case AttentionKernel::cudnn:
      return detail::cudnn_forward(result, qkv, s);
    case AttentionKernel::math:
      return detail::math_forward(result, qkv, s, docs);
  }
  throw std::logic_error("unknown attention kernel");
}

void attention_backward(const at::Tensor& dqkv, const at::Tensor& dout, const at::Tensor& qkv,
                        const AttentionResult& forward, const Attention& attention,
                        const at::Tensor& /*scratch*/) {
  const c10::NoGradGuard no_grad;
  const AttentionShape& s = attention.shape;
  check(qkv, s, attention.documents, attention.kernel);
  check(dqkv, s, attention.documents, attention.kernel);
  check_result(forward, qkv, s);
  TORCH_CHECK(dout.sizes() == forward.out.sizes(), "attention: dout must be (tokens, heads * head_dim)");
  if (qkv.numel() == 0) return;
  const Documents docs = effective(attention.documents, s);
  const at::Tensor dense = dout.contiguous();
  const detail::Backward args{.dqkv = dqkv, .dout = dense, .qkv = qkv, .forward = forward};
  switch (attention.kernel) {
    case AttentionKernel::flash:
      return qkv.is_cuda() ? detail::flash_cuda_backward(args, s, docs)
                           : detail::flash_cpu_backward(args, s, docs);
    case AttentionKernel::cudnn:
      return detail::cudnn_backward(args, s);
    case AttentionKernel::math:
      return detail::math_backward(args, s, docs);
  }
}

namespace detail {

Heads split_heads(const at::Tensor& packed, const AttentionShape& s) {
  const at::Tensor all = packed.view({s.batch, s.context, s.heads + 2 * s.kv_heads, s.head_dim});
  return {.q = all.narrow(2, 0, s.heads),
          .k = all.narrow(2, s.heads, s.kv_heads),
          .v = all.narrow(2, s.heads + s.kv_heads, s.kv_heads)};
}

}  // namespace detail
}  // namespace narrowgauge::ops
