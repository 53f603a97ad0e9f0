#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <fmt/format.h>

#include "cuda/scale.h"
#include "lib/bench/kernel_cases.h"
#include "lib/ops/device.h"
#include "lib/ops/rope.h"
#include "lib/ops/swiglu.h"

namespace narrowgauge::bench {
namespace {

// x cos - y sin, y cos + x sin of the rotated heads, out of place, as a model in plain ATen writes it.
void rotate_eagerly(const at::Tensor& qkv, const ops::RopeTable& table, int64_t heads, int64_t head_dim,
                    int64_t context) {
  const int64_t half = head_dim / 2;
  const at::Tensor view =
      qkv.narrow(1, 0, heads * head_dim).view({qkv.size(0) / context, context, heads, head_dim});
  const at::Tensor x = view.narrow(3, 0, half);
  const at::Tensor y = view.narrow(3, half, half);
  const auto factor = [&](const at::Tensor& t) {
    return t.narrow(0, 0, context).to(qkv.scalar_type()).unsqueeze(1);
  };
  const at::Tensor cos = factor(table.cos);
  const at::Tensor sin = factor(table.sin);
  (void)at::cat({x.mul(cos).sub(y.mul(sin)), y.mul(cos).add(x.mul(sin))}, 3);
}

Measured rope_case(at::Device device, const ModelConfig& model, int64_t rows, int64_t context, bool inverse) {
  const int64_t width = model.qkv_width();
  const int64_t head_dim = model.head_size();
  const int64_t heads = model.heads + model.kv_head_count();
  return {.name = inverse ? "rope_backward" : "rope",
          .shape = fmt::format("{} x {} of {}", rows, heads * head_dim, width),
          .bytes = 4.0 * static_cast<double>(rows * heads * head_dim),
          .prepare = [=, theta = model.rope_theta] {
            const at::Tensor qkv = random_normal(device, {rows, width}, at::kBFloat16);
            const ops::RopeTable table = ops::make_rope_table(context, head_dim, theta, device);
            Prepared prepared{
                .launch = [=] { ops::rope_in_place(qkv, table, heads, head_dim, context, {}, inverse); },
                .footprint = 2 * rows * width};
            if (!inverse) {
              prepared.eager = [=] { rotate_eagerly(qkv, table, heads, head_dim, context); };
            }
            return prepared;
          }};
}

struct SwigluTensors {
  SwigluTensors(at::Device device, int64_t rows, int64_t cols)
      : gate_up(random_normal(device, {rows, 2 * cols}, at::kBFloat16)),
        dout(random_normal(device, {rows, cols}, at::kBFloat16)),
        out(at::empty_like(dout)),
        dgate_up(at::empty_like(gate_up)) {}
  at::Tensor gate_up, dout, out, dgate_up;
};

void swiglu_backward_eagerly(const SwigluTensors& t) {
  const int64_t cols = t.out.size(1);
  const at::Tensor gate = t.gate_up.narrow(1, 0, cols);
  const at::Tensor up = t.gate_up.narrow(1, cols, cols);
  const at::Tensor dgate = at::silu_backward(at::mul(t.dout, up), gate);
  (void)at::cat({dgate, at::mul(t.dout, at::silu(gate))}, 1);
}

std::vector<Measured> swiglu_cases(at::Device device, const ModelConfig& model, int64_t rows) {
  const int64_t cols = model.ffn_size;
  const double matrix = 2.0 * static_cast<double>(rows * cols);
  const std::string shape = fmt::format("{} x {}", rows, cols);
  const auto tensors = [=] { return std::make_shared<SwigluTensors>(device, rows, cols); };
  const auto footprint = [=](int matrices) { return static_cast<int64_t>(matrix) * matrices; };
  return {
      {.name = "swiglu",
       .shape = shape,
       .bytes = 3 * matrix,
       .prepare =
           [=] {
             const auto t = tensors();
             return Prepared{.launch = [t] { ops::swiglu_forward(t->out, t->gate_up); },
                             .eager =
                                 [t, cols] {
                                   (void)at::mul(at::silu(t->gate_up.narrow(1, 0, cols)),
                                                 t->gate_up.narrow(1, cols, cols));
                                 },
                             .footprint = footprint(3)};
           }},
      {.name = "swiglu_backward",
       .shape = shape,
       .bytes = 5 * matrix,
       .prepare =
           [=] {
             const auto t = tensors();
             return Prepared{.launch = [t] { ops::swiglu_backward(t->dgate_up, {}, t->dout, t->gate_up); },
                             .eager = [t] { swiglu_backward_eagerly(*t); },
                             .footprint = footprint(5)};
           }},
      {.name = "swiglu_backward_product",
       .shape = shape,
       .bytes = 6 * matrix,
       .prepare =
           [=] {
             const auto t = tensors();
             return Prepared{
                 .launch = [t] { ops::swiglu_backward(t->dgate_up, t->out, t->dout, t->gate_up); },
                 .footprint = footprint(6)};
           }},
  };
}

Measured scale_case(at::Device device, int64_t count) {
  return {.name = "scale",
          .shape = fmt::format("{}", count),
          .bytes = 4.0 * static_cast<double>(count),
          .prepare = [=] {
            const at::Tensor x = random_normal(device, {count}, at::kBFloat16);
            const at::Tensor y = at::empty_like(x);
            return Prepared{.launch =
                                [=] {
                                  cuda::scale<cuda::bf16>(
                                      {.y = static_cast<cuda::bf16*>(y.data_ptr()),
                                       .x = static_cast<const cuda::bf16*>(x.const_data_ptr()),
                                       .count = count,
                                       .factor = 0.5F},
                                      ops::limits_of(x), ops::current_stream(x));
                                },
                            .eager = [=] { (void)at::mul(x, 0.5); },
                            .footprint = 4 * count};
          }};
}

}  // namespace

std::vector<Measured> elementwise_cases(at::Device device, const ModelConfig& model, int64_t rows,
                                        int64_t context) {
  std::vector<Measured> cases = swiglu_cases(device, model, rows);
  for (const bool inverse : {true, false}) {
    cases.insert(cases.begin(), rope_case(device, model, rows, context, inverse));
  }
  cases.push_back(scale_case(device, rows * model.ffn_size));
  return cases;
}

}  // namespace narrowgauge::bench
