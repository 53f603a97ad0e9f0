#include "lib/ops/attention.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <stdexcept>

#include "lib/ops/attention_cudnn.h"
#include "lib/ops/attention_kernels.h"

namespace narrowgauge::ops {
namespace {

void check_mask(const Attention& attention) {
  if (attention.documents.cu_seqlens.defined() && attention.kernel == AttentionKernel::cudnn)
    throw std::invalid_argument("cudnn attention has no document mask");
}

void check(const at::Tensor& packed, const Attention& attention) {
  const AttentionShape& s = attention.shape;
  TORCH_CHECK(s.heads >= 1 && s.kv_heads >= 1 && s.heads % s.kv_heads == 0,
              "attention: heads must be a multiple of kv_heads");
  TORCH_CHECK(packed.dim() == 2 && packed.is_contiguous() && packed.size(0) == s.batch * s.context &&
                  packed.size(1) == (s.heads + 2 * s.kv_heads) * s.head_dim,
              "attention: packed rows must be a contiguous (batch * context, (heads + 2 kv_heads) head_dim)");
  const at::Tensor& cu = attention.documents.cu_seqlens;
  TORCH_CHECK(!cu.defined() || (cu.dim() == 1 && cu.scalar_type() == at::kInt && cu.is_contiguous() &&
                                cu.device() == packed.device()),
              "attention: cu_seqlens must be contiguous int32 on the tensors' device");
  check_mask(attention);
}

void check_result(const AttentionResult& result, const at::Tensor& qkv, const AttentionShape& s) {
  TORCH_CHECK(result.out.is_contiguous() && result.out.dim() == 2 && result.out.size(0) == qkv.size(0) &&
                  result.out.size(1) == s.heads * s.head_dim && result.out.scalar_type() == qkv.scalar_type(),
              "attention: out must be a contiguous (tokens, heads * head_dim) of qkv's dtype");
  TORCH_CHECK(result.lse.is_contiguous() && result.lse.dim() == 1 &&
                  result.lse.size(0) == qkv.size(0) * s.heads && result.lse.scalar_type() == at::kFloat,
              "attention: lse must be a contiguous fp32 (tokens * heads)");
}

const CudnnSetup& setup_of(const Attention& attention, at::Device device) {
  return cudnn_setup({.shape = attention.shape,
                      .device = device,
                      .deterministic = attention.deterministic,
                      .workspace_limit = attention.workspace_limit});
}

const CudnnSetup& setup_of(const Attention& attention, const at::Tensor& qkv) {
  TORCH_CHECK(qkv.is_cuda() && qkv.scalar_type() == at::kBFloat16, "cudnn attention needs bf16 on CUDA");
  return setup_of(attention, qkv.device());
}

// A context of one token has one-token documents whatever the boundaries say.
Documents effective(const Documents& documents, const AttentionShape& shape) {
  return shape.context > 1 ? documents : Documents{};
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

int64_t usual_boundaries(int64_t batch, int64_t context) {
  constexpr int64_t kTokensPerDocument = 512;
  constexpr int64_t kUnit = 16;
  const int64_t documents = batch * ((context + kTokensPerDocument - 1) / kTokensPerDocument);
  return (documents + kUnit) / kUnit * kUnit;
}

int64_t attention_scratch_bytes(const Attention& attention, at::Device device) {
  const AttentionScratch bytes = attention_scratch(attention, device);
  return std::max(bytes.forward, bytes.backward);
}

AttentionScratch attention_scratch(const Attention& attention, at::Device device) {
  if (attention.kernel != AttentionKernel::cudnn || attention.shape.batch == 0) return {};
  check_mask(attention);
  const CudnnSetup& setup = setup_of(attention, device);
  return {.forward = setup.forward.workspace_bytes(), .backward = setup.backward.workspace_bytes()};
}

void attention_forward(const AttentionResult& result, const at::Tensor& qkv, const Attention& attention,
                       const at::Tensor& scratch) {
  const c10::NoGradGuard no_grad;
  const AttentionShape& s = attention.shape;
  check(qkv, attention);
  check_result(result, qkv, s);
  if (qkv.numel() == 0) return;
  const Documents docs = effective(attention.documents, s);
  switch (attention.kernel) {
    case AttentionKernel::flash:
      return qkv.is_cuda() ? detail::flash_cuda_forward(result, qkv, s, docs)
                           : detail::flash_cpu_forward(result, qkv, s, docs);
    case AttentionKernel::cudnn:
      return detail::cudnn_forward(setup_of(attention, qkv), result, qkv, s, scratch);
    case AttentionKernel::math:
      return detail::math_forward(result, qkv, s, docs);
  }
  throw std::logic_error("unknown attention kernel");
}

void attention_backward(const at::Tensor& dqkv, const at::Tensor& dout, const at::Tensor& qkv,
                        const AttentionResult& forward, const Attention& attention,
                        const at::Tensor& scratch) {
  const c10::NoGradGuard no_grad;
  const AttentionShape& s = attention.shape;
  check(qkv, attention);
  check(dqkv, attention);
  check_result(forward, qkv, s);
  TORCH_CHECK(dout.sizes() == forward.out.sizes() && dout.scalar_type() == qkv.scalar_type() &&
                  dqkv.scalar_type() == qkv.scalar_type(),
              "attention: dout must be (tokens, heads * head_dim), and it and dqkv of qkv's dtype");
  if (qkv.numel() == 0) return;
  const Documents docs = effective(attention.documents, s);
  const at::Tensor dense = dout.contiguous();
  const detail::Backward args{.dqkv = dqkv, .dout = dense, .qkv = qkv, .forward = forward};
  switch (attention.kernel) {
    case AttentionKernel::flash:
      return qkv.is_cuda() ? detail::flash_cuda_backward(args, s, docs)
                           : detail::flash_cpu_backward(args, s, docs);
    case AttentionKernel::cudnn:
      return detail::cudnn_backward(setup_of(attention, qkv), args, s, scratch);
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
