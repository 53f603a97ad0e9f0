#if NARROWGAUGE_CUDA
#include "lib/ops/gemm_problem.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

#include "cuda/gemm_workspace.h"
#include "cuda/launch_delay.h"

namespace narrowgauge::ops {
namespace {

// The rule of deterministic sums: split products are added up in fp32 by a kernel of their own, or not split.
constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

void lt_check(cublasStatus_t status, const char* what) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: ", what, " failed with status ",
              static_cast<int>(status));
}

cudaDataType_t lt_type(at::ScalarType type) { return type == at::kFloat ? CUDA_R_32F : CUDA_R_16BF; }

cublasLtMatmulDesc_t make_operation(const GemmShape& shape) {
  cublasLtMatmulDesc_t made = nullptr;
  lt_check(cublaslt().desc_create(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, bool transpose) {
    const cublasOperation_t value = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    lt_check(cublaslt().desc_set(made, attribute, &value, sizeof(value)), "transposing");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_b);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_a);
  return made;
}

// A row-major (rows, columns) matrix is a column-major (columns, rows) one.
cublasLtMatrixLayout_t make_layout(at::ScalarType type, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  lt_check(cublaslt().layout_create(&made, lt_type(type), static_cast<uint64_t>(columns),
                                    static_cast<uint64_t>(rows), stride),
           "describing a matrix");
  return made;
}

// 0 for what an algorithm does not have.
template <class T>
T config_of(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  size_t written = 0;
  const auto status = cublaslt().config_get(&algorithm, attribute, &value, sizeof(value), &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : T{};
}

bool keeps_order(const cublasLtMatmulAlgo_t& algorithm) {
  uint32_t scheme = 0;
  size_t written = 0;
  return cublaslt().config_get(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof(scheme),
                               &written) == CUBLAS_STATUS_SUCCESS &&
         (scheme & ~kReductions) == 0;
}

size_t workspace_bytes(bool workspace) {
  return workspace ? static_cast<size_t>(cuda::kGemmWorkspaceBytes) : 0;
}

bool same_code(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) {
  return std::memcmp(a.data, b.data, sizeof(a.data)) == 0;
}

GemmDevice make_gemm_device(at::Device device) {
  cudaStreamCaptureStatus capture{};
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &capture));
  if (capture != cudaStreamCaptureStatusNone) {
    throw std::logic_error("the first product on a device takes its workspace: it must not be captured");
  }
  GemmDevice made;
  lt_check(cublaslt().create(&made.handle), "starting");
  const auto bytes = at::TensorOptions().dtype(at::kByte).device(device);
  // Never freed: at the end of the process the driver may be gone before static objects.
  made.workspace = (new at::Tensor(at::empty({cuda::kGemmWorkspaceBytes}, bytes)))->mutable_data_ptr();
  return made;
}

}  // namespace

const GemmDevice& gemm_device(at::Device device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, GemmDevice> devices;
  const std::lock_guard lock(mutex);
  const auto found = devices.find(device.index());
  return found != devices.end() ? found->second
                                : devices.emplace(device.index(), make_gemm_device(device)).first->second;
}

GemmProblem::GemmProblem(const GemmShape& s, const GemmDevice& device)
    : shape_(s),
      device_(device),
      operation_(make_operation(s), cublaslt().desc_destroy),
      left_(make_layout(s.in, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb),
            cublaslt().layout_destroy),
      right_(make_layout(s.in, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.lda),
             cublaslt().layout_destroy),
      result_(make_layout(s.out, s.m, s.n, s.ldc), cublaslt().layout_destroy) {}

std::vector<GemmAlgorithm> GemmProblem::listed(int count, bool workspace) const {
  cublasLtMatmulPreference_t made = nullptr;
  lt_check(cublaslt().preference_create(&made), "asking for algorithms");
  const Owned<cublasLtMatmulPreference_t> preference(made, cublaslt().preference_destroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    lt_check(cublaslt().preference_set(made, attribute, &value, sizeof(value)), "asking for algorithms");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes(workspace)));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(operand, static_cast<uint32_t>(shape_.alignment));
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  const cublasStatus_t status =
      cublaslt().heuristic(device_.handle, operation_.get(), left_.get(), right_.get(), result_.get(),
                           result_.get(), made, count, results.data(), &found);
  results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
  std::vector<GemmAlgorithm> allowed;
  for (const auto& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS && keeps_order(result.algo) &&
        result.workspaceSize <= workspace_bytes(workspace)) {
      allowed.push_back({.code = result.algo, .workspace = workspace});
    }
  }
  return allowed;
}

std::vector<GemmAlgorithm> GemmProblem::algorithms(int count, bool both) const {
  std::vector<GemmAlgorithm> all = listed(count, /*workspace=*/true);
  if (both || all.empty()) {
    const std::vector<GemmAlgorithm> listed_without = listed(count, /*workspace=*/false);
    std::vector<GemmAlgorithm> without;
    const auto add = [&](const GemmAlgorithm& one) {
      const GemmAlgorithm bare{.code = one.code, .workspace = false};
      const bool known = std::any_of(without.begin(), without.end(),
                                     [&](const auto& other) { return same_code(other.code, bare.code); });
      if (!known && takes(bare)) without.push_back(bare);
    };
    std::for_each(all.begin(), all.end(), add);
    std::for_each(listed_without.begin(), listed_without.end(), add);
    all.insert(all.end(), without.begin(), without.end());
  }
  TORCH_CHECK(!all.empty(), "cuBLASLt has no algorithm for ", gemm_key(shape_));
  return all;
}

bool GemmProblem::takes(const GemmAlgorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublaslt().check(device_.handle, operation_.get(), left_.get(), right_.get(), result_.get(),
                          result_.get(), &algorithm.code, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_bytes(algorithm.workspace) && keeps_order(algorithm.code);
}

cublasStatus_t GemmProblem::run(const GemmAlgorithm& algorithm, void* c, const void* a, const void* b,
                                cudaStream_t stream) const {
  cuda::launch_delay();
  const float alpha = 1;
  const float beta = shape_.accumulate ? 1 : 0;
  return cublaslt().matmul(device_.handle, operation_.get(), &alpha, b, left_.get(), a, right_.get(), &beta,
                           c, result_.get(), c, result_.get(), &algorithm.code,
                           algorithm.workspace ? device_.workspace : nullptr,
                           workspace_bytes(algorithm.workspace), stream);
}

nlohmann::json algorithm_to_json(const GemmAlgorithm& algorithm, double chosen_us, double first_us) {
  const cublasLtMatmulAlgo_t& code = algorithm.code;
  std::string digits;
  for (const uint64_t word : code.data) digits += fmt::format("{:016x}", word);
  return {{"algorithm", digits},
          {"workspace", algorithm.workspace},
          {"us", chosen_us},
          {"first_us", first_us},
          {"id", config_of<int32_t>(code, CUBLASLT_ALGO_CONFIG_ID)},
          {"tile", config_of<uint32_t>(code, CUBLASLT_ALGO_CONFIG_TILE_ID)},
          {"stages", config_of<uint32_t>(code, CUBLASLT_ALGO_CONFIG_STAGES_ID)},
          {"split_k", config_of<int32_t>(code, CUBLASLT_ALGO_CONFIG_SPLITK_NUM)}};
}

std::optional<GemmAlgorithm> algorithm_from_json(const nlohmann::json& value) {
  if (!value.is_object() || !value.value("algorithm", nlohmann::json()).is_string() ||
      !value.value("workspace", nlohmann::json()).is_boolean()) {
    return std::nullopt;
  }
  const auto digits = value["algorithm"].get<std::string>();
  GemmAlgorithm algorithm{.code = {}, .workspace = value["workspace"].get<bool>()};
  constexpr size_t kDigits = 16;  // of a word
  if (digits.size() != kDigits * std::size(algorithm.code.data)) return std::nullopt;
  const char* next = digits.data();
  for (uint64_t& word : algorithm.code.data) {
    const auto parsed = std::from_chars(next, next + kDigits, word, 16);
    if (parsed.ec != std::errc() || parsed.ptr != next + kDigits) return std::nullopt;
    next += kDigits;
  }
  return algorithm;
}

}  // namespace narrowgauge::ops
#endif
