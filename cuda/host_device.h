#pragma once
// Arithmetic that a kernel and its CPU twin share is written once, in functions marked with this.
#ifdef __CUDACC__
#define NARROWGAUGE_HD __host__ __device__ __forceinline__
#else
#define NARROWGAUGE_HD inline
#endif
