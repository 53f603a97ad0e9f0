#include "lib/bench/attention_pass.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <memory>

#include "lib/bench/kernel_cases.h"

namespace narrowgauge::bench {
namespace {

// The only place that calls the op.
class AttentionCall {
 public:
  AttentionCall(at::Device device, const ops::Attention& attention, at::ScalarType dtype)
      : attention_(attention) {
    const ops::AttentionShape& shape = attention.shape;
    const int64_t tokens = shape.batch * shape.context;
    const int64_t width = shape.heads * shape.head_dim;
    qkv_ = random_normal(device, {tokens, width + 2 * shape.kv_heads * shape.head_dim}, dtype);
    dout_ = random_normal(device, {tokens, width}, dtype);
    dqkv_ = at::empty_like(qkv_);
    result_ = {.out = at::empty_like(dout_),
               .lse = at::empty({tokens * shape.heads}, qkv_.options().dtype(at::kFloat))};
    scratch_ = at::empty({ops::attention_scratch_bytes(attention, device)}, qkv_.options().dtype(at::kByte));
    forward();
  }
  void forward() const { ops::attention_forward(result_, qkv_, attention_, scratch_); }
  void backward() const { ops::attention_backward(dqkv_, dout_, qkv_, result_, attention_, scratch_); }
  [[nodiscard]] int64_t footprint() const { return static_cast<int64_t>(2 * qkv_.nbytes()); }

 private:
  ops::Attention attention_;
  at::Tensor qkv_, dout_, dqkv_, scratch_;
  ops::AttentionResult result_;
};

}  // namespace

Prepared prepare_attention(at::Device device, const ops::Attention& attention, at::ScalarType dtype,
                           bool forward) {
  const auto call = std::make_shared<AttentionCall>(device, attention, dtype);
  return {.launch = [call, forward] { forward ? call->forward() : call->backward(); },
          .footprint = call->footprint()};
}

}  // namespace narrowgauge::bench
