#include "lib/ops/adamw.h"

#include <algorithm>

#include "lib/ops/adamw_cpu.h"
#include "lib/ops/device.h"

namespace narrowgauge::ops {
namespace {

int64_t count_of(const at::Tensor& t) { return t.defined() ? t.numel() : 0; }

template <class T>
T* data_of(const at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.data_ptr()) : nullptr;
}

void check(const AdamWTensors& t) {
  const auto require = [&](const at::Tensor& x, std::initializer_list<at::ScalarType> types, int64_t count,
                           const char* name) {
    if (!x.defined()) return;
    TORCH_CHECK(std::find(types.begin(), types.end(), x.scalar_type()) != types.end(), "adamw: dtype of ",
                name);
    TORCH_CHECK(x.is_contiguous() && x.device() == t.weights.device(), "adamw: layout or device of ", name);
    TORCH_CHECK(count < 0 || x.numel() == count, "adamw: size of ", name);
  };
  require(t.state, {at::kByte}, sizeof(cuda::StepState), "state");
  require(t.weights, {at::kFloat, at::kBFloat16}, -1, "weights");
  require(t.grad, {at::kFloat, at::kBFloat16}, -1, "grad");
  require(t.grad32, {at::kFloat}, -1, "grad32");
  require(t.m_codes, {at::kByte}, -1, "m_codes");
  require(t.v_codes, {at::kByte}, count_of(t.m_codes), "v_codes");
  require(t.m_scales, {at::kFloat}, count_of(t.m_codes) / cuda::kAdamWBlock, "m_scales");
  require(t.v_scales, {at::kFloat}, count_of(t.m_codes) / cuda::kAdamWBlock, "v_scales");
  require(t.m32, {at::kFloat}, -1, "m32");
  require(t.v32, {at::kFloat}, count_of(t.m32), "v32");
  require(t.remainder, {at::kShort}, -1, "remainder");
  require(t.master, {at::kFloat}, -1, "master");
}

// The same limits as the kernel's launcher sets.
void check_range(const cuda::AdamWRange& r, const AdamWTensors& t) {
  const int64_t length = r.end - r.begin;
  const int64_t grads = count_of(r.grad_is_low ? t.grad : t.grad32);
  const int64_t states = count_of(r.eight_bit ? t.m_codes : t.m32);
  for (const int64_t x : {r.begin, r.end, r.grad_begin, r.state_begin}) {
    TORCH_CHECK(x >= 0 && x % cuda::kAdamWBlock == 0,
                "adamw: a range does not begin and end at multiples of 256");
  }
  TORCH_CHECK(length >= 0 && r.end <= t.weights.numel() && r.grad_begin + length <= grads &&
                  r.state_begin + length <= states,
              "adamw: a range lies outside its buffers");
}

// `launch` on all ranges, as many at a time as one call takes.
template <class T, class G, class Launch>
void run(const AdamWTensors& t, const std::vector<cuda::AdamWRange>& ranges, const cuda::AdamWRules& rules,
         cuda::Master master, const Launch& launch) {
  cuda::AdamW<T, G> args{.weights = data_of<T>(t.weights),
                         .remainder = data_of<int16_t>(t.remainder),
                         .master = data_of<float>(t.master),
                         .grad = data_of<G>(t.grad),
                         .grad32 = data_of<float>(t.grad32),
                         .m_codes = data_of<uint8_t>(t.m_codes),
                         .v_codes = data_of<uint8_t>(t.v_codes),
                         .m_scales = data_of<float>(t.m_scales),
                         .v_scales = data_of<float>(t.v_scales),
                         .m32 = data_of<float>(t.m32),
                         .v32 = data_of<float>(t.v32),
                         .state = data_of<cuda::StepState>(t.state),
                         .count = t.weights.numel(),
                         .grad_count = count_of(t.grad),
                         .grad32_count = count_of(t.grad32),
                         .code_count = count_of(t.m_codes),
                         .state32_count = count_of(t.m32),
                         .rules = rules,
                         .master_mode = master,
                         .ranges = {},
                         .range_count = 0};
  for (size_t first = 0; first < ranges.size(); first += cuda::kMaxAdamWRanges) {
    const size_t count = std::min<size_t>(ranges.size() - first, cuda::kMaxAdamWRanges);
    std::copy_n(ranges.begin() + static_cast<std::ptrdiff_t>(first), count, args.ranges);
    args.range_count = static_cast<int>(count);
    launch(args);
  }
}

template <class T, class G>
void run_on_cuda(const AdamWTensors& t, const std::vector<cuda::AdamWRange>& ranges,
                 const cuda::AdamWRules& rules, cuda::Master master) {
  run<T, G>(t, ranges, rules, master, [&](const cuda::AdamW<T, G>& args) {
    cuda::adamw(args, limits_of(t.weights), current_stream(t.weights));
  });
}

template <class T, class G>
void run_on_cpu(const AdamWTensors& t, const std::vector<cuda::AdamWRange>& ranges,
                const cuda::AdamWRules& rules, cuda::Master master) {
  for (const cuda::AdamWRange& range : ranges) check_range(range, t);
  run<T, G>(t, ranges, rules, master, adamw_on_cpu<T, G>);
}

}  // namespace

void adamw(const AdamWTensors& t, const std::vector<cuda::AdamWRange>& ranges, const cuda::AdamWRules& rules,
           cuda::Master master) {
  check(t);
  const bool bf16 = t.weights.scalar_type() == at::kBFloat16;
  const bool low = t.grad.defined() && t.grad.scalar_type() == at::kBFloat16;
  TORCH_CHECK((master == cuda::Master::none) == !bf16, "adamw: the master mode does not fit the weights");
  TORCH_CHECK(count_of(t.remainder) == (master == cuda::Master::split ? t.weights.numel() : 0) &&
                  count_of(t.master) == (master == cuda::Master::fp32 ? t.weights.numel() : 0),
              "adamw: size of the remainder or the master");
  if (t.weights.is_cuda()) {
    if (bf16) {
      low ? run_on_cuda<cuda::bf16, cuda::bf16>(t, ranges, rules, master)
          : run_on_cuda<cuda::bf16, float>(t, ranges, rules, master);
    } else {
      low ? run_on_cuda<float, cuda::bf16>(t, ranges, rules, master)
          : run_on_cuda<float, float>(t, ranges, rules, master);
    }
  } else if (bf16) {
    low ? run_on_cpu<Bits16, Bits16>(t, ranges, rules, master)
        : run_on_cpu<Bits16, float>(t, ranges, rules, master);
  } else {
    low ? run_on_cpu<float, Bits16>(t, ranges, rules, master)
        : run_on_cpu<float, float>(t, ranges, rules, master);
  }
}

}  // namespace narrowgauge::ops
