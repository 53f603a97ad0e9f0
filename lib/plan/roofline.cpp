#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>

#include "lib/plan/rates.h"

namespace narrowgauge::plan {
namespace {

// Figures of an H200 (README, Measured): a copy reaches 4.24 of 4.8 TB/s; 22.5 ms of a step lie between its
// kernels, 30 a layer and micro-batch; a deterministic run takes 27 ms longer, all of it in the backward of
// attention, which takes 163 ms without.
constexpr double kCopyOfBandwidth = 0.883;
constexpr double kLaunchSeconds = 1.95e-6;
constexpr double kDeterministic = 1.16;
// Single-precision products without tensor cores, in parts of the bf16 rate: data sheets.
constexpr double kFp32OfBf16 = 1.0 / 15;
constexpr double kFp32OfBf16GeForce = 1.0 / 2;

double number(int64_t count) { return static_cast<double>(count); }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How much longer `tiles` take than `ideal` of them on all multiprocessors at once: smaller tiles and sums
// split over multiprocessors recover part of an unfilled wave.
double wave_factor(int64_t tiles, double ideal, int sm_count) {
  return std::sqrt(number(ceil_div(tiles, sm_count)) / (ideal / sm_count));
}

}  // namespace

Roofline::Roofline(const Card& card, bool fp32)
    : flops_(card.flops() * (!fp32               ? 1
                             : card.is_geforce() ? kFp32OfBf16GeForce
                                                 : kFp32OfBf16)),
      bandwidth_(card.bandwidth() * kCopyOfBandwidth),
      sm_count_(card.sm_count),
      element_(fp32 ? 4 : 2),
      efficiency_(card.efficiency()) {}

double Roofline::product(const Probe& probe) const {
  const auto [in, out, gradient, unused] = probe.shape;
  int64_t m = probe.rows;
  int64_t n = out;
  int64_t k = in;
  if (probe.work == Work::product_input_grad) std::swap(n, k);
  if (probe.work == Work::product_weight_grad) {
    m = out;
    n = in;
    k = probe.rows;
  }
  const double flop = 2 * number(m) * number(n) * number(k);
  const int64_t tiles = std::min(ceil_div(m, 128) * ceil_div(n, 256), ceil_div(m, 256) * ceil_div(n, 128));
  const double ideal = number(m) * number(n) / (128 * 256);
  const double compute = flop / (flops_ * efficiency_.products) * wave_factor(tiles, ideal, sm_count_);
  const double bytes = number(element_) * (number(m) * number(k) + number(k) * number(n));
  const double result = number(m) * number(n) * number(element_);
  if (probe.work != Work::product_weight_grad) return std::max(compute, (bytes + result) / bandwidth_);
  return std::max(compute, bytes / bandwidth_) + 2 * number(m) * number(n) * number(gradient) / bandwidth_;
}

double Roofline::attention(const Probe& probe) const {
  const auto [context, heads, kv_heads, head_size] = probe.shape;
  const bool forward = probe.work == Work::attention;
  const double flop = (forward ? 2.0 : 5.0) * number(probe.rows) * number(heads) * number(head_size) *
                      number(context) * number(context);
  // Heads are padded to 32 columns; the softmax takes as long as 32 more; tiles on the diagonal are half
  // empty.
  const double useful = number(head_size) / number(ceil_div(head_size, 32) * 32 + 32);
  const double diagonal = number(context + 128) / number(context);
  const double ideal = number(probe.rows) * number(heads) * number(context) / 128;
  const double waves = wave_factor(probe.rows * heads * ceil_div(context, 128), ideal, sm_count_);
  const double rate =
      flops_ * useful * (forward ? efficiency_.attention_forward : efficiency_.attention_backward);
  const double moved = number(element_ * probe.rows * context * head_size) * number(2 * heads + 2 * kv_heads);
  const double times = probe.work == Work::attention_backward_deterministic ? kDeterministic : 1;
  return std::max(flop * diagonal * waves / rate, (forward ? 1 : 2) * moved / bandwidth_) * times;
}

double Roofline::seconds(const Probe& probe) const {
  if (probe.rows <= 0) return 0;
  switch (probe.work) {
    case Work::product:
    case Work::product_input_grad:
    case Work::product_weight_grad:
      return product(probe);
    case Work::attention:
    case Work::attention_backward:
    case Work::attention_backward_deterministic:
      return attention(probe);
    case Work::traffic:
      return number(probe.rows) / bandwidth_;
    case Work::launch:
      return number(probe.rows) * kLaunchSeconds;
  }
  throw std::logic_error("unknown work");
}

}  // namespace narrowgauge::plan
