#pragma once
// Device memory of a training process, from the layouts of lib/layout and what lies around them.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cuda/device_limits.h"
#include "lib/layout/layout.h"
#include "lib/layout/static_bytes.h"
#include "lib/plan/attention_scratch.h"
#include "lib/plan/choice.h"

namespace narrowgauge::plan {

enum class Kind : uint8_t {
  weights,
  gradients,
  optimizer,
  saved,      // in the slab: for backward
  temporary,  // in the slab
  loss,       // in the slab: logits and the sums of the loss
  scratch,    // in the slab, or of attention outside it: attention's and the norms'
  slab_rest,  // of the slab, not in use
  cache,      // keys and values of sampling, and what a sample computes beside the slab
  gemm_workspace,
  batch,     // batches on the device and rotary tables
  rounding,  // what the allocator adds
  outside,   // of the allocator: context, library modules, graphs
};
inline constexpr int kKinds = static_cast<int>(Kind::outside) + 1;
const char* kind_name(Kind kind);

struct Bytes {
  std::array<int64_t, kKinds> of{};
  int64_t& operator[](Kind kind) { return of[static_cast<size_t>(kind)]; }
  int64_t operator[](Kind kind) const { return of[static_cast<size_t>(kind)]; }
  [[nodiscard]] int64_t sum() const;
  bool operator==(const Bytes&) const = default;
};

// Device bytes of the process outside its allocator with CUDA graphs on; an estimate: 0.7 GiB were measured
// on an H200 with driver 580 beside 977M parameters.
inline constexpr int64_t kOutsideEstimate = int64_t{717} << 20;

// Bytes that a run of this config holds from start to end.
layout::StaticBytes static_bytes(const Config& config);

// What lib/layout cannot know.
struct Surroundings {
  std::optional<cuda::DeviceLimits> limits;  // of the GPU; none on the CPU
  int64_t outside = kOutsideEstimate;        // context, library modules, graphs
  bool outside_measured = false;
  // Sequences of one pass of an evaluation (train::evaluation_windows); 0: the run evaluates nothing.
  int64_t evaluation_sequences = 0;
  // Attention's scratch in the slab for passes of so many sequences (ops::attention_scratch). Empty: an
  // estimate.
  std::function<AttentionScratch(int64_t sequences)> attention_scratch;
};

// A moment of the run and what is held then.
struct Moment {
  const char* name;  // "training pass", "update", "evaluation", "sample", "checkpoint"
  Bytes bytes;
};

struct MemoryUse {
  int64_t slab = 0;
  std::vector<Moment> moments;  // each at its own peak
  size_t peak = 0;              // the moment with most bytes, the first of several

  [[nodiscard]] const Bytes& at_peak() const { return moments[peak].bytes; }
  [[nodiscard]] int64_t bytes() const { return at_peak().sum(); }
};

// One operation of a micro-batch, or a whole moment of the run.
struct Point {
  int64_t operation;
  std::string label;  // "embedding", "layer 7 forward", "loss", "layer 7 backward", or the moment's name
  Bytes bytes;
};

class MemoryModel {
 public:
  // The config's choices are not read: they come with every call.
  MemoryModel(const Config& config, Surroundings surroundings);

  // A training pass, as lib/model asks lib/layout for it.
  [[nodiscard]] layout::StepShape shape(const Choice& choice) const;
  // The slab holds the largest of training pass, evaluation and sample; of the last two:
  [[nodiscard]] int64_t other_slab(int64_t loss_chunk) const;
  // All that is held beside the slab when most of it is, and the slab would be of `slab` bytes.
  [[nodiscard]] int64_t beside_slab(int64_t micro_batch, int64_t slab) const;

  // By the real layouts. Placing a hundred layers takes some milliseconds.
  [[nodiscard]] MemoryUse use(const Choice& choice) const;
  [[nodiscard]] int64_t bytes(const Choice& choice) const;  // use().bytes()
  [[nodiscard]] int64_t slab(const Choice& choice) const;   // use().slab
  // Every operation of a micro-batch, then the other moments at their peaks.
  [[nodiscard]] std::vector<Point> timeline(const Choice& choice) const;

  [[nodiscard]] const layout::StaticBytes& fixed() const { return fixed_; }
  [[nodiscard]] const Config& config() const { return config_; }

 private:
  [[nodiscard]] Bytes held(int64_t micro_batch, int64_t slab) const;
  [[nodiscard]] layout::StepShape pass_shape(layout::Purpose purpose, int64_t sequences,
                                             int64_t loss_chunk) const;
  [[nodiscard]] AttentionScratch scratch(int64_t sequences) const;
  [[nodiscard]] int64_t outside_scratch(int64_t sequences) const;
  [[nodiscard]] int64_t sample_bytes() const;
  [[nodiscard]] bool evaluates() const;
  [[nodiscard]] bool samples() const;
  [[nodiscard]] int64_t batch_bytes(int64_t sequences, int64_t micro_batch) const;

  Config config_;
  Surroundings around_;
  layout::StaticBytes fixed_;
};

}  // namespace narrowgauge::plan
