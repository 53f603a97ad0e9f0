#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/ops/cublaslt.h"
#include "lib/ops/gemm.h"

namespace narrowgauge::ops {

// What products of one device share. Made by the first call; both last as long as the process.
struct GemmDevice {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;  // cuda::kGemmWorkspaceBytes
};
const GemmDevice& gemm_device(at::Device device);

// cuBLASLt's description of a shape, and what may compute it on `device`, which must be current. c10::Error
// when the library refuses the shape.
class GemmProblem {
 public:
  GemmProblem(const GemmShape& shape, const GemmDevice& device);

  // At most `count` algorithms in the library's order, the one it holds for the fastest first; only those
  // that sum in a fixed order and fit the workspace. c10::Error when there are none.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> algorithms(int count) const;
  // True when the library takes it here and it keeps those rules.
  [[nodiscard]] bool takes(const cublasLtMatmulAlgo_t& algorithm) const;
  [[nodiscard]] cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm, void* c, const void* a,
                                   const void* b, cudaStream_t stream) const;

 private:
  template <class T>
  using Owned = std::unique_ptr<std::remove_pointer_t<T>, cublasStatus_t (*)(T)>;

  GemmShape shape_;
  const GemmDevice& device_;
  Owned<cublasLtMatmulDesc_t> operation_;
  Owned<cublasLtMatrixLayout_t> left_;  // the library is column-major: its left operand is our B
  Owned<cublasLtMatrixLayout_t> right_;
  Owned<cublasLtMatrixLayout_t> result_;
};

// An algorithm as the value of a choice, with measured microseconds; and back, if it is one.
nlohmann::json algorithm_to_json(const cublasLtMatmulAlgo_t& algorithm, double chosen_us, double first_us);
std::optional<cublasLtMatmulAlgo_t> algorithm_from_json(const nlohmann::json& value);

}  // namespace narrowgauge::ops
