#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lib/data/dataset.h"
#include "lib/data/sampler.h"

namespace narrowgauge::data {

// Samples of one optimizer step, host memory, sequence after sequence.
struct GlobalBatch {
  int64_t step = 0;
  int64_t sequences = 0;
  int64_t context = 0;
  int32_t* tokens = nullptr;     // (sequences, context)
  int32_t* targets = nullptr;    // (sequences, context)
  int32_t* positions = nullptr;  // (sequences, context), restarted per document; only with document_mask
  // Start of every document inside each sequence, beginning with 0; only with document_mask. A document ends
  // after its end-of-document token.
  std::vector<std::vector<int32_t>> document_starts;
  int64_t counted_targets = 0;  // every one: also the target of an end-of-document token counts
};

// Memory that the loader fills: the trainer passes pinned memory on CUDA, tests plain memory. The loader
// allocates in its constructor and releases in its destructor, both on the caller's thread.
struct HostBuffer {
  void* data = nullptr;
  std::function<void()> release;
};
using HostAllocator = std::function<HostBuffer(size_t bytes)>;
HostBuffer plain_host_buffer(size_t bytes);

struct LoaderOptions {
  int64_t sequences = 1;  // of one global batch
  int64_t context = 0;
  bool document_mask = false;
  int32_t end_of_document = -1;
  int64_t prefetch = 2;  // batches read ahead of the one in use; 0: none
  int64_t first_step = 0;
};

// Reads global batches ahead on one background thread. Sample j of step s is global sample s * sequences + j
// of the sampler.
class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, Sampler sampler, LoaderOptions options,
         const HostAllocator& allocate = plain_host_buffer);
  ~Loader();  // stops the thread
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next global batch; blocks until read. Valid until the next call of next(). Errors of the
  // background thread (UserError) are thrown here, after the batches read before them. One thread calls.
  const GlobalBatch& next();
  // Seconds spent waiting in next() so far.
  [[nodiscard]] double wait_seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace narrowgauge::data
