#include "lib/ops/embedding.h"

#include <ATen/Parallel.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "cuda/embedding.h"
#include "lib/ops/device.h"

namespace narrowgauge::ops {
namespace {

void check(const at::Tensor& table, const at::Tensor& rows, const at::Tensor& tokens) {
  TORCH_CHECK(table.dim() == 2 && table.is_contiguous() && table.numel() > 0,
              "embedding: the table must be a contiguous (V, H)");
  TORCH_CHECK(tokens.dim() == 1 && tokens.is_contiguous() && tokens.scalar_type() == at::kInt,
              "embedding: tokens must be contiguous int32 (count)");
  TORCH_CHECK(rows.dim() == 2 && rows.is_contiguous() && rows.size(0) == tokens.size(0) &&
                  rows.size(1) == table.size(1),
              "embedding: the rows must be a contiguous (count, H)");
  TORCH_CHECK(rows.scalar_type() == at::kFloat || rows.scalar_type() == at::kBFloat16,
              "embedding: the rows must be bf16 or fp32");
  TORCH_CHECK(table.device() == rows.device() && tokens.device() == rows.device(),
              "embedding: tensors on different devices");
}

template <class T>
void launch_forward(const at::Tensor& out, const at::Tensor& weight, const at::Tensor& tokens) {
  cuda::embedding_forward<T>({.out = static_cast<T*>(out.data_ptr()),
                              .weight = static_cast<const T*>(weight.const_data_ptr()),
                              .tokens = tokens.const_data_ptr<int32_t>(),
                              .count = tokens.size(0),
                              .width = weight.size(1),
                              .vocab = weight.size(0)},
                             limits_of(out), current_stream(out));
}

at::Tensor sorted_order(const at::Tensor& tokens) {
  return std::get<1>(at::sort(tokens, /*stable=*/true, /*dim=*/0, /*descending=*/false)).to(at::kInt);
}

template <class T>
void launch_backward(const at::Tensor& dweight, const at::Tensor& dy, const at::Tensor& tokens,
                     const at::Tensor& given) {
  const at::Tensor order = given.defined() ? given : sorted_order(tokens);
  cuda::embedding_backward<T>({.dweight = dweight.data_ptr<float>(),
                               .dy = static_cast<const T*>(dy.const_data_ptr()),
                               .tokens = tokens.const_data_ptr<int32_t>(),
                               .order = order.const_data_ptr<int32_t>(),
                               .count = tokens.size(0),
                               .width = dweight.size(1),
                               .vocab = dweight.size(0)},
                              limits_of(dy), current_stream(dy));
}

template <class T>
void forward_on_cpu(const at::Tensor& out, const at::Tensor& weight, const at::Tensor& tokens) {
  T* to = out.data_ptr<T>();
  const T* from = weight.const_data_ptr<T>();
  const int32_t* id = tokens.const_data_ptr<int32_t>();
  const int64_t width = weight.size(1);
  const int64_t vocab = weight.size(0);
  at::parallel_for(0, tokens.size(0), 64, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (id[i] < 0 || id[i] >= vocab) {
        std::fill_n(to + i * width, width, static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
      } else {
        std::copy_n(from + id[i] * width, width, to + i * width);
      }
    }
  });
}

// Every thread owns a range of columns and adds all tokens in their order.
template <class T>
void backward_on_cpu(const at::Tensor& dweight, const at::Tensor& dy, const at::Tensor& tokens,
                     const at::Tensor& /*order*/) {
  float* to = dweight.data_ptr<float>();
  const T* from = dy.const_data_ptr<T>();
  const int32_t* id = tokens.const_data_ptr<int32_t>();
  const int64_t width = dweight.size(1);
  const int64_t vocab = dweight.size(0);
  const int64_t count = tokens.size(0);
  at::parallel_for(0, width, 32, [=](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      if (id[i] < 0 || id[i] >= vocab) continue;
      float* sum = to + id[i] * width;
      const T* row = from + i * width;
      for (int64_t c = begin; c < end; ++c) sum[c] += static_cast<float>(row[c]);
    }
  });
}

}  // namespace

void embedding_forward(const at::Tensor& out, const at::Tensor& weight, const at::Tensor& tokens) {
  check(weight, out, tokens);
  TORCH_CHECK(weight.scalar_type() == out.scalar_type(), "embedding: weight and out differ in dtype");
  const bool bf16 = out.scalar_type() == at::kBFloat16;
  const auto run = out.is_cuda() ? (bf16 ? launch_forward<cuda::bf16> : launch_forward<float>)
                                 : (bf16 ? forward_on_cpu<at::BFloat16> : forward_on_cpu<float>);
  run(out, weight, tokens);
}

void embedding_backward(const at::Tensor& dweight, const at::Tensor& dy, const at::Tensor& tokens,
                        const at::Tensor& order) {
  check(dweight, dy, tokens);
  TORCH_CHECK(!order.defined() || (order.sizes() == tokens.sizes() && order.is_contiguous() &&
                                   order.scalar_type() == at::kInt && order.device() == tokens.device()),
              "embedding: the order must be contiguous int32 (count) on the tokens' device");
  TORCH_CHECK(dweight.scalar_type() == at::kFloat, "embedding: dweight must be fp32");
  const bool bf16 = dy.scalar_type() == at::kBFloat16;
  const auto run = dy.is_cuda() ? (bf16 ? launch_backward<cuda::bf16> : launch_backward<float>)
                                : (bf16 ? backward_on_cpu<at::BFloat16> : backward_on_cpu<float>);
  run(dweight, dy, tokens, order);
}

}  // namespace narrowgauge::ops
