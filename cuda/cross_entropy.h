#pragma once
#include <cstdint>

#include "cuda/device_limits.h"
#include "cuda/stream.h"

namespace narrowgauge::cuda {

// Softmax cross-entropy of the rows of `logits`, in place. With S the sum of exp over the vocabulary, lse =
// log S and t the target: losses = lse - logits[t] + z_loss * lse^2, and logits become scale * d losses / d
// logits. Columns from `vocab` on are padding: outside S, gradient 0. A row whose target is `ignore_index`
// has loss, lse and gradient 0; any other target outside [0, vocab) gives loss and lse NaN and gradient 0. A
// NaN or +Inf logit makes its own row NaN.
template <class T>
struct CrossEntropy {
  T* logits;               // (rows, columns), rows row_stride elements apart
  float* losses;           // (rows)
  float* lse;              // (rows)
  const int32_t* targets;  // (rows)
  const float* scale;      // one value in device memory; may be null when gradient is false
  int64_t rows;            // >= 0; 0 launches nothing
  int64_t columns;         // vocab <= columns < 2^30
  int64_t row_stride;      // >= columns; 16-byte rows (and base) take the fast path
  int64_t vocab;           // >= 1
  int32_t ignore_index;
  float z_loss;
  bool gradient;  // false: logits are only read
};

struct CrossEntropyLaunch {
  int threads;
  int64_t blocks;  // resident: as many as run at once, which walk over the rows; else one a row
  int shared_bytes =
      0;          // dynamic: the next row, copied while the present one is worked on; 0: it does not fit
  bool resident;  // the row stays in registers; else it is read twice
  bool vectors;   // 16-byte accesses
};

// Pure function of the card's limits. `vectors`: all rows start on 16 bytes; `lanes`: elements of 16 bytes.
CrossEntropyLaunch plan_cross_entropy(int64_t rows, int64_t vocab, int lanes, bool vectors,
                                      const DeviceLimits& limits);

// Asynchronous on `stream`. T: float, bf16. Throws LaunchError (null pointer, bad sizes)
// before the launch and CudaError after it.
template <class T>
void cross_entropy(const CrossEntropy<T>& args, const DeviceLimits& limits, Stream stream);

}  // namespace narrowgauge::cuda
