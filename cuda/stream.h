#pragma once
// Forward declarations only, so that a host source that calls kernels never includes CUDA headers.
struct CUstream_st;
struct __nv_bfloat16;

namespace narrowgauge::cuda {

using Stream = CUstream_st*;
using bf16 = __nv_bfloat16;

}  // namespace narrowgauge::cuda
