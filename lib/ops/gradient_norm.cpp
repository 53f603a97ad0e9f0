#include "lib/ops/gradient_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cuda/float_math.h"
#include "lib/ops/device.h"
#include "lib/ops/fma_clones.h"

namespace narrowgauge::ops {
namespace {

constexpr int kThreads = cuda::kGradNormThreads;
constexpr int64_t kStride = int64_t{cuda::kGradNormPartials} * kThreads;  // in vectors of 16 bytes

cuda::StepState* pointer(const at::Tensor& state) {
  TORCH_CHECK(state.scalar_type() == at::kByte && state.is_contiguous() &&
                  state.numel() == static_cast<int64_t>(sizeof(cuda::StepState)),
              "the step state must be a byte tensor of its size");
  return static_cast<cuda::StepState*>(state.data_ptr());
}

// Sums of squares of `lanes` neighbouring vectors of 16 bytes, one sum for each of the kernel's threads.
NARROWGAUGE_FMA_CLONES void add_squares(float* sums, const float* grad, int64_t lanes) {
  for (int64_t t = 0; t < lanes; ++t) {
    for (int i = 0; i < 4; ++i) sums[t] = __builtin_fmaf(grad[4 * t + i], grad[4 * t + i], sums[t]);
  }
}
NARROWGAUGE_FMA_CLONES void add_squares(float* sums, const c10::BFloat16* grad, int64_t lanes) {
  for (int64_t t = 0; t < lanes; ++t) {
    for (int i = 0; i < 8; ++i) {
      const float g = cuda::bits_float(uint32_t{grad[8 * t + i].x} << 16);
      sums[t] = __builtin_fmaf(g, g, sums[t]);
    }
  }
}

// The order of the kernel's block sum: a butterfly in every warp, then the warps one by one.
double block_sum(double* x) {
  double sum = 0;
  for (int warp = 0; warp < kThreads; warp += 32) {
    for (int width = 16; width > 0; width /= 2) {
      for (int lane = 0; lane < width; ++lane) x[warp + lane] += x[warp + lane + width];
    }
    sum += x[warp];
  }
  return sum;
}

template <class G>
double square_sum_fp64(const G* grad, int64_t first, int64_t vectors, int64_t count) {
  constexpr int64_t kVec = 16 / sizeof(G);
  const auto square = [](double x) { return x * x; };
  double sum = 0;
  for (int64_t vector = first; vector < vectors; vector += kStride) {
    for (int64_t i = 0; i < kVec; ++i) sum += square(static_cast<float>(grad[vector * kVec + i]));
  }
  const int64_t tail = vectors * kVec + first;
  if (first < kVec && tail < count) sum += square(static_cast<float>(grad[tail]));
  return sum;
}

template <class G>
double partial_sum(const G* grad, int64_t count, int64_t partial) {
  constexpr int64_t kVec = 16 / sizeof(G);
  constexpr int64_t kUnroll = cuda::kGradNormUnroll;
  const int64_t vectors = count / kVec;
  const int64_t begin = partial * kThreads;
  float sums[kUnroll][kThreads] = {};
  // The kernel's threads leave their unrolled loop one by one, where fewer than kUnroll strides are left.
  for (int64_t row = 0; begin + row * kStride < vectors; ++row) {
    const int64_t at = begin + row * kStride;
    const int64_t group_end = begin + (row / kUnroll * kUnroll + kUnroll - 1) * kStride;
    const int64_t lanes = std::min<int64_t>(kThreads, vectors - at);
    const int64_t unrolled = std::clamp<int64_t>(vectors - group_end, 0, lanes);
    add_squares(sums[row % kUnroll], grad + at * kVec, unrolled);
    add_squares(sums[0] + unrolled, grad + (at + unrolled) * kVec, lanes - unrolled);
  }
  double totals[kThreads];
  for (int64_t t = 0; t < kThreads; ++t) {
    const int64_t tail = vectors * kVec + begin + t;
    if (begin + t < kVec && tail < count) {
      const float g = static_cast<float>(grad[tail]);
      sums[1][t] = __builtin_fmaf(g, g, sums[1][t]);
    }
    totals[t] = (double{sums[0][t]} + double{sums[1][t]}) + (double{sums[2][t]} + double{sums[3][t]});
    if (!std::isfinite(totals[t])) totals[t] = square_sum_fp64(grad, begin + t, vectors, count);
  }
  return block_sum(totals);
}

template <class G>
void norm_on_cpu(double* partials, const at::Tensor& grad) {
  const G* data = grad.const_data_ptr<G>();
  const int64_t count = grad.numel();
  at::parallel_for(0, cuda::kGradNormPartials, 64, [=](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) partials[p] = partial_sum(data, count, p);
  });
}

template <class G>
void norm_on_cuda(double* partials, const at::Tensor& grad, const at::Tensor& state) {
  cuda::gradient_norm<G>(
      {.partials = partials, .grad = static_cast<const G*>(grad.const_data_ptr()), .count = grad.numel()},
      limits_of(state), current_stream(state));
}

void finish_on_cpu(cuda::StepState& state, const double* partials, const cuda::StepRules& rules) {
  double totals[kThreads] = {};
  for (int64_t i = 0; i < kNormScratch; ++i) totals[i % kThreads] += partials[i];
  cuda::finish_step(state, block_sum(totals), rules);
}

}  // namespace

at::Tensor make_step_state(at::Device device) {
  const cuda::StepState initial;
  const at::Tensor state = at::empty({sizeof initial}, at::TensorOptions(at::kByte));
  std::memcpy(state.data_ptr(), &initial, sizeof initial);
  return state.to(device);
}

void write_step_input(const at::Tensor& state, const cuda::StepInput& input) {
  cuda::StepState* target = pointer(state);
  if (state.is_cuda()) {
    cuda::write_step_input(target, input, current_stream(state));
  } else {
    target->input = input;
  }
}

void gradient_norm(const at::Tensor& state, const at::Tensor& scratch, const at::Tensor& grad,
                   const at::Tensor& grad32, const cuda::StepRules& rules) {
  TORCH_CHECK(
      scratch.scalar_type() == at::kDouble && scratch.is_contiguous() && scratch.numel() == kNormScratch,
      "gradient_norm: scratch must hold ", kNormScratch, " fp64 elements");
  TORCH_CHECK(grad32.scalar_type() == at::kFloat, "gradient_norm: grad32 must be fp32");
  const bool low = grad.scalar_type() == at::kBFloat16;
  TORCH_CHECK(low || grad.scalar_type() == at::kFloat, "gradient_norm: grad must be bf16 or fp32");
  for (const at::Tensor& t : {scratch, grad, grad32}) {
    TORCH_CHECK(t.is_contiguous() && t.device() == state.device(),
                "gradient_norm: tensors must be contiguous and on the state's device");
  }
  double* partials = scratch.data_ptr<double>();
  double* partials32 = partials + cuda::kGradNormPartials;
  if (state.is_cuda()) {
    if (low) {
      norm_on_cuda<cuda::bf16>(partials, grad, state);
    } else {
      norm_on_cuda<float>(partials, grad, state);
    }
    norm_on_cuda<float>(partials32, grad32, state);
    cuda::finish_gradient_norm({.state = pointer(state),
                                .partials = partials,
                                .partial_count = static_cast<int>(kNormScratch),
                                .rules = rules},
                               current_stream(state));
    return;
  }
  if (low) {
    norm_on_cpu<c10::BFloat16>(partials, grad);
  } else {
    norm_on_cpu<float>(partials, grad);
  }
  norm_on_cpu<float>(partials32, grad32);
  finish_on_cpu(*pointer(state), partials, rules);
}

}  // namespace narrowgauge::ops
