#pragma once
// Rotary position embedding (Su et al. 2021) in place, half-split layout: element i of a head is paired with
// i + head_dim / 2. With a = position * theta^(-2i / head_dim): (x, y) -> (x cos a - y sin a, y cos a + x sin
// a).
#include <cstdint>

#include "cuda/flat_launch.h"
#include "cuda/stream.h"

namespace narrowgauge::cuda {

template <class T>
struct Rope {
  T* qkv;            // (tokens, row_stride): heads [0, heads) of every row are rotated, the rest stays
  const float* cos;  // (positions, head_dim / 2), dense
  const float* sin;  // (positions, head_dim / 2), dense
  const int32_t* positions;  // (tokens), each a row of the tables; null: token t has position t % context
  int64_t tokens;            // >= 0; 0 launches nothing
  int64_t row_stride;        // elements from one token to the next, >= heads * head_dim
  int64_t heads;             // >= 0; 0 launches nothing
  int64_t head_dim;          // even, >= 2
  int64_t context;           // >= 1; read only when positions is null
  bool inverse;              // rotate back: the gradient
};

// A warp rotates whole heads of one token, 16 bytes a lane, since a head's halves written apart would leave
// sectors half written; or, where that does not fit, a thread rotates one pair.
struct RopeLaunch {
  FlatLaunch flat;
  int lanes;  // of a warp that share a head; 0: one pair a thread
};

// Pure function of the card's limits. Vectorised: pointers, row_stride and head_dim / 2 allow 16-byte
// vectors.
constexpr RopeLaunch plan_rope(int64_t tokens, int64_t heads, int64_t head_dim, int element_bytes,
                               bool vectorised, const DeviceLimits& limits) {
  const int64_t lanes = head_dim * element_bytes / 16;
  if (vectorised && lanes <= 32) return {plan_flat(tokens * 32, limits), static_cast<int>(lanes)};
  return {plan_flat(tokens * heads * (head_dim / 2), limits), 0};
}

// Asynchronous on `stream`. T: float, bf16. Any alignment works; pointers on 16-byte boundaries with
// row_stride and head_dim / 2 divisible by 16 / sizeof(T) and heads of at most 512 bytes are fast. Throws
// LaunchError (null pointer, size out of range) before the launch and CudaError after it.
template <class T>
void rope(const Rope<T>& args, const DeviceLimits& limits, Stream stream);

}  // namespace narrowgauge::cuda
