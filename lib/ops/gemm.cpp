#include "lib/ops/gemm.h"

#include <fmt/format.h>

#include <stdexcept>

#if NARROWGAUGE_CUDA
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "lib/base/log.h"
#include "lib/ops/choices.h"
#include "lib/ops/device.h"
#include "lib/ops/gemm_problem.h"
#endif

namespace narrowgauge::ops {

std::string gemm_key(const GemmShape& s) {
  const auto type = [](at::ScalarType t) { return t == at::kFloat ? "fp32" : "bf16"; };
  return fmt::format("gemm {}->{} {}x{}x{} {}{} ld {},{},{} beta {}{}", type(s.in), type(s.out), s.m, s.n,
                     s.k, s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.lda, s.ldb, s.ldc,
                     s.accumulate ? 1 : 0,
                     s.alignment == 16 ? std::string() : fmt::format(" align {}", s.alignment));
}

#if NARROWGAUGE_CUDA
namespace {

// A shape on a device with its algorithm.
struct GemmPlan {
  GemmProblem problem;
  GemmAlgorithm algorithm;
  bool chosen;  // by a choice in force
};

// Plans by device and shape, made anew when the choices change.
struct GemmPlans {
  std::mutex mutex;
  uint64_t version = 0;  // of the choices
  std::map<std::pair<c10::DeviceIndex, GemmShape>, std::shared_ptr<const GemmPlan>> plans;

  void follow_choices() {
    if (version == choices().version()) return;
    version = choices().version();
    plans.clear();
  }
};

// Never destroyed, as the library's handles are not.
GemmPlans& gemm_plans() {
  static auto* instance = new GemmPlans;
  return *instance;
}

std::shared_ptr<const GemmPlan> make_plan(const GemmShape& shape, at::Device device) {
  GemmProblem problem(shape, gemm_device(device));
  const std::string key = gemm_key(shape);
  if (const auto choice = choices().find(key)) {
    const auto algorithm = algorithm_from_json(*choice);
    if (algorithm && problem.takes(*algorithm)) {
      return std::make_shared<const GemmPlan>(GemmPlan{std::move(problem), *algorithm, true});
    }
    log_warn(
        fmt::format("{}: cuBLASLt does not take the chosen algorithm here; its first heuristic is used "
                    "and bits may differ",
                    key));
  }
  constexpr int kListed = 8;  // the first one that keeps the rules is near the top
  const GemmAlgorithm first = problem.algorithms(kListed, /*both=*/false).front();
  return std::make_shared<const GemmPlan>(GemmPlan{std::move(problem), first, false});
}

std::shared_ptr<const GemmPlan> find_plan(const GemmShape& shape, at::Device device) {
  GemmPlans& all = gemm_plans();
  const std::lock_guard lock(all.mutex);
  all.follow_choices();
  std::shared_ptr<const GemmPlan>& plan = all.plans[{device.index(), shape}];
  if (!plan) plan = make_plan(shape, device);
  return plan;
}

// Elements from row to row; those of a single row have no meaning.
int64_t leading_dimension(const at::Tensor& t) {
  const int64_t columns = std::max<int64_t>(1, t.size(1));
  TORCH_CHECK(t.size(1) <= 1 || t.stride(1) == 1, "gemm: rows must be contiguous");
  if (t.size(0) <= 1) return columns;
  TORCH_CHECK(t.stride(0) >= columns, "gemm: rows must not overlap");
  return t.stride(0);
}

GemmShape shape_of(const at::Tensor& c, const at::Tensor& a, bool transpose_a, const at::Tensor& b,
                   bool transpose_b, bool accumulate) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && c.dim() == 2, "gemm: matrices must have two dimensions");
  TORCH_CHECK(a.device() == c.device() && b.device() == c.device(), "gemm: one device");
  const at::ScalarType in = a.scalar_type();
  const at::ScalarType out = c.scalar_type();
  TORCH_CHECK(b.scalar_type() == in && (in == at::kFloat || in == at::kBFloat16) &&
                  (out == at::kFloat || (out == at::kBFloat16 && in == out)),
              "gemm: bf16 or fp32 inputs of one dtype, a result in it or in fp32");
  const int64_t m = c.size(0);
  const int64_t n = c.size(1);
  const int64_t k = a.size(transpose_a ? 0 : 1);
  TORCH_CHECK(a.size(transpose_a ? 1 : 0) == m && b.size(transpose_b ? 0 : 1) == n &&
                  b.size(transpose_b ? 1 : 0) == k,
              "gemm: ", a.sizes(), " and ", b.sizes(), " do not give ", c.sizes());
  return {.m = m,
          .n = n,
          .k = k,
          .transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .lda = leading_dimension(a),
          .ldb = leading_dimension(b),
          .ldc = leading_dimension(c),
          .in = in,
          .out = out,
          .accumulate = accumulate};
}

// Of the least aligned address, 16 at most: no algorithm asks for more.
int64_t common_alignment(const void* c, const void* a, const void* b) {
  const auto bits = std::bit_cast<uintptr_t>(c) | std::bit_cast<uintptr_t>(a) | std::bit_cast<uintptr_t>(b);
  return int64_t{1} << std::min(4, std::countr_zero(bits));
}

}  // namespace

void gemm(const at::Tensor& c, const at::Tensor& a, bool transpose_a, const at::Tensor& b, bool transpose_b,
          bool accumulate) {
  GemmShape shape = shape_of(c, a, transpose_a, b, transpose_b, accumulate);
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) {
    if (!accumulate) c.zero_();
    return;
  }
  void* const to = c.mutable_data_ptr();
  const void* const left = a.const_data_ptr();
  const void* const right = b.const_data_ptr();
  shape.alignment = common_alignment(to, left, right);
  const c10::cuda::CUDAGuard guard(c.device());
  const auto plan = find_plan(shape, c.device());
  const cublasStatus_t status = plan->problem.run(plan->algorithm, to, left, right, current_stream(c));
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: ", gemm_key(shape), " failed with status ",
              static_cast<int>(status));
}

int64_t unchosen_gemms() {
  GemmPlans& all = gemm_plans();
  const std::lock_guard lock(all.mutex);
  all.follow_choices();
  return std::count_if(all.plans.begin(), all.plans.end(),
                       [](const auto& entry) { return entry.second && !entry.second->chosen; });
}
#else
void gemm(const at::Tensor&, const at::Tensor&, bool, const at::Tensor&, bool, bool) {
  throw std::logic_error("this build has no CUDA");
}
ProductTimings time_gemm(const GemmShape&, at::Device, int64_t) {
  throw std::logic_error("this build has no CUDA");
}
int64_t unchosen_gemms() { return 0; }
#endif

}  // namespace narrowgauge::ops
