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

// One way to compute a product. Given no workspace, the library can do without clearing it before each
// product.
struct GemmAlgorithm {
  cublasLtMatmulAlgo_t code;
  bool workspace = true;  // it is given the device's
};

// cuBLASLt's description of a shape, and what may compute it on `device`, which must be current. c10::Error
// when the library refuses the shape.
class GemmProblem {
 public:
  GemmProblem(const GemmShape& shape, const GemmDevice& device);

  // Algorithms in the library's order, at most `count` that are given the workspace, the one it holds for the
  // fastest first, then, where `both`, all that can do without: the same ones, and at most `count` that the
  // library lists for products without workspace. Only those that sum in a fixed order. c10::Error when there
  // are none.
  [[nodiscard]] std::vector<GemmAlgorithm> algorithms(int count, bool both) const;
  // True when the library takes it here and it keeps those rules.
  [[nodiscard]] bool takes(const GemmAlgorithm& algorithm) const;
  [[nodiscard]] cublasStatus_t run(const GemmAlgorithm& algorithm, void* c, const void* a, const void* b,
                                   cudaStream_t stream) const;

 private:
  // Those of the library's list for so much workspace.
  [[nodiscard]] std::vector<GemmAlgorithm> listed(int count, bool workspace) const;

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
nlohmann::json algorithm_to_json(const GemmAlgorithm& algorithm, double chosen_us, double first_us);
std::optional<GemmAlgorithm> algorithm_from_json(const nlohmann::json& value);

}  // namespace narrowgauge::ops
