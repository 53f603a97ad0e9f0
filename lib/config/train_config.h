#pragma once
#include <cstdint>
#include <string>

namespace narrowgauge {

struct TrainConfig {
  int64_t steps = 1000;
  int64_t micro_batch = 0;          // sequences; 0: auto
  int64_t tokens_per_step = 65536;  // global batch
  int64_t seed = 1234;
  std::string device = "auto";         // auto | cuda | cpu
  std::string dtype = "bf16";          // bf16 | fp32
  std::string deterministic = "auto";  // auto | true | false; a run's is one of the last two
  std::string attention = "auto";      // auto | flash | cudnn | math
  std::string cuda_graphs = "auto";    // auto | on | off
  bool tune_kernels = true;            // GPU, bf16: choose GEMM algorithms by timing
  double z_loss = 0.0;                 // weight of the squared log-sum-exp
  int64_t save_every = 500;            // steps; 0: only at the end
  int64_t keep_last = 2;               // checkpoints
  int64_t keep_every = 0;              // steps; checkpoints at its multiples are never pruned; 0: none
  int64_t eval_every = 250;            // steps; 0: never
  int64_t eval_tokens = 262144;        // at most, per evaluation
  int64_t sample_every = 0;            // steps; 0: never
  int64_t sample_tokens = 64;
  std::string sample_prompt;
  double max_hours = 0;    // wall clock of this run; 0: no limit
  int64_t max_tokens = 0;  // tokens over all resumes; 0: no limit
  double stop_grace = 20;  // seconds that a stop may take to finish the step

  [[nodiscard]] bool is_deterministic() const { return deterministic == "true"; }
};

}  // namespace narrowgauge
