#pragma once
// How the cudnn kernel of attention.h does a job: what one call of its backward covers, and by which of
// cuDNN's plans the passes run. Used by attention*.cpp, the bench and tests.
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/ops/attention.h"
#include "lib/ops/cudnn_graph.h"

namespace narrowgauge::ops {

struct CudnnJob {
  AttentionShape shape;
  at::Device device;
  bool deterministic;       // backward gives the same bits twice
  int64_t workspace_limit;  // as in Attention
};

struct CudnnSetup {
  AttentionShape group;  // what one backward call covers: some sequences, or some heads of one
  cudnn::Plan forward;
  cudnn::Plan backward;
  [[nodiscard]] int64_t scratch_bytes() const;
};

// The setup in force: what choices() has for the job, else the largest group whose workspace keeps to the
// limit (the smallest group when none does) with cuDNN's first plans. Built at the first use, which is not
// possible while a CUDA graph is captured, and kept for the life of the process. cudnn::Refusal, at once from
// the second time on.
const CudnnSetup& cudnn_setup(const CudnnJob& job);

// Why cuDNN cannot do the job; empty when it can.
std::string cudnn_refusal(const CudnnJob& job);

// Finds the fastest setup and puts it into force, unless choices() has the answer, in force or remembered;
// without `timing` only the latter. Where no plan of a pass can be trusted (try_cudnn) cuDNN refuses the job
// from then on, and a line says so.
void tune_cudnn(const CudnnJob& job, bool timing);

// "B1 T4096 Hq16 Hk16 D112", and what a deterministic backward adds: of a job, for keys of choices().
std::string attention_key(const AttentionShape& shape, bool deterministic, int64_t workspace_limit);

struct CudnnTrial {
  CudnnSetup setup;
  double milliseconds;  // of one forward or one whole backward
};

// What tune_cudnn() looks at, in the order of the trials. A plan is left out that does not build, needs more
// than the limit, gives other bits the second time where it should not, or whose result is off by 1 %; so are
// those whose turn does not come within 1.5 s.
struct CudnnTrials {
  std::vector<CudnnTrial> groups;  // backward by cuDNN's first plan, largest group first
  std::vector<CudnnTrial> forward;
  std::vector<CudnnTrial> backward;  // of the fastest group
};
CudnnTrials try_cudnn(const CudnnJob& job);

namespace detail {

// A setup for each of the `at_most` largest groups that keep to the limit, with cuDNN's first plans. At least
// one, else cudnn::Refusal.
std::vector<CudnnSetup> cudnn_candidates(const CudnnJob& job, size_t at_most);
cudnn::Pass cudnn_forward_pass(const CudnnJob& job);
cudnn::Pass cudnn_backward_pass(const CudnnJob& job, const AttentionShape& group);
std::string cudnn_setup_key(const CudnnJob& job);
nlohmann::json cudnn_setup_json(const CudnnSetup& setup);
// What choices() is to have after the trials: the fastest setup, or {"refused": why}; and that why.
nlohmann::json cudnn_answer(const CudnnTrials& trials);
std::optional<std::string> cudnn_refused(const nlohmann::json& answer);

}  // namespace detail
}  // namespace narrowgauge::ops
