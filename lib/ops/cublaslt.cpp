#if NARROWGAUGE_CUDA
#include "lib/ops/cublaslt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

namespace narrowgauge::ops {
namespace {

template <class Function>
void look_up(Function& function, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  if (function == nullptr) throw std::runtime_error(fmt::format("LibTorch's cuBLASLt has no {}", name));
}

CublasLt load_cublaslt() {
  CublasLt lt{};
  look_up(lt.get_version, "cublasLtGetVersion");
  look_up(lt.create, "cublasLtCreate");
  look_up(lt.desc_create, "cublasLtMatmulDescCreate");
  look_up(lt.desc_destroy, "cublasLtMatmulDescDestroy");
  look_up(lt.desc_set, "cublasLtMatmulDescSetAttribute");
  look_up(lt.layout_create, "cublasLtMatrixLayoutCreate");
  look_up(lt.layout_destroy, "cublasLtMatrixLayoutDestroy");
  look_up(lt.preference_create, "cublasLtMatmulPreferenceCreate");
  look_up(lt.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  look_up(lt.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  look_up(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  look_up(lt.check, "cublasLtMatmulAlgoCheck");
  look_up(lt.config_get, "cublasLtMatmulAlgoConfigGetAttribute");
  look_up(lt.matmul, "cublasLtMatmul");
  if (const size_t version = lt.get_version(); version / 10000 != CUBLAS_VER_MAJOR) {
    throw std::runtime_error(fmt::format("cuBLASLt {} was loaded, this program needs major version {}",
                                         version, CUBLAS_VER_MAJOR));
  }
  return lt;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt functions = load_cublaslt();
  return functions;
}

}  // namespace narrowgauge::ops
#endif
