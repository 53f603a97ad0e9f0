#pragma once
// Before a function whose loops use fused multiply-add: it is compiled twice, for processors with and without
// that instruction, and the right one is chosen when the program starts. Both give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define NARROWGAUGE_FMA_CLONES __attribute__((target_clones("default", "arch=haswell")))
#else
#define NARROWGAUGE_FMA_CLONES
#endif
