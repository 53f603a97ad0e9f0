#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace narrowgauge {

// How much of a layer's forward is kept for backward (the ladder of lib/layout/recompute.h).
enum class RecomputeLevel { none, elementwise, ffn, ffn_qkv, block };

struct MemoryConfig {
  std::string plan = "auto";  // auto | off: whether what is auto is planned, proved before step 1 and kept
  // One level for all layers, one a layer, or empty for auto.
  std::vector<RecomputeLevel> recompute;
  int64_t loss_chunk = 4096;                         // tokens whose logits exist at once
  std::string grad_dtype = "bf16";                   // bf16 | fp32: gradients outside embedding and norms
  int64_t attention_workspace = int64_t{544} << 20;  // bytes of scratch of a deterministic backward
  int64_t budget = 0;  // bytes of device memory of the whole process; 0: what is free, less the reserve
  int64_t reserve = int64_t{1} << 30;  // bytes left to other programs when the budget is auto
};

// "none", "elementwise", "ffn", "ffn+qkv", "block".
const char* recompute_name(RecomputeLevel level);

}  // namespace narrowgauge
