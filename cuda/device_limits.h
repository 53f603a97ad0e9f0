#pragma once

namespace narrowgauge::cuda {

// What launch planning may know about a card. Planning is a pure function of this struct, so a test
// can plan (and, on any larger card, run) with the limits of a card that is not present.
struct DeviceLimits {
  int sm_count = 0;
  int shared_bytes_per_block = 0;  // opt-in maximum for one block
  int max_threads_per_sm = 0;
  int compute_major = 0;
  int compute_minor = 0;
};

inline constexpr DeviceLimits kRtx5080Limits{.sm_count = 84,
                                             .shared_bytes_per_block = 101376,
                                             .max_threads_per_sm = 1536,
                                             .compute_major = 12,
                                             .compute_minor = 0};

// Reads the limits of CUDA device `device` (cached after the first call). Throws CudaError.
DeviceLimits device_limits(int device);

}  // namespace narrowgauge::cuda
