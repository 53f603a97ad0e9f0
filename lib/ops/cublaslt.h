#pragma once
#include <cublasLt.h>

namespace narrowgauge::ops {

// The functions of cuBLASLt, from the copy that LibTorch brought into the process. They are looked up there
// instead of linked, so that no second copy (of a system toolkit, say) is ever loaded beside it; any minor
// version of the major that this program was compiled for will do.
struct CublasLt {
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) check;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) config_get;
  decltype(&cublasLtMatmul) matmul;
};

// std::runtime_error when the process has no cuBLASLt of that major version.
const CublasLt& cublaslt();

}  // namespace narrowgauge::ops
