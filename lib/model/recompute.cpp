#include "lib/model/recompute.h"

namespace narrowgauge::model {

int64_t kept_bytes(const ModelConfig& config, RecomputeLevel level, int64_t tokens, int64_t element_bytes) {
  const Kept keep = kept(level);
  const int64_t queries_keys = config.query_width() + config.kv_width();
  int64_t elements = config.hidden_size;
  int64_t fp32 = 0;
  if (keep.attention) {
    elements += config.query_width() + config.hidden_size;
    fp32 += config.heads + 2;
  }
  if (keep.qkv) elements += config.qkv_width();
  if (keep.gate_up) elements += 2 * config.ffn_size;
  if (keep.product) elements += config.ffn_size;
  if (keep.norms) {
    elements += 2 * config.hidden_size;
    if (config.qk_norm) {
      elements += queries_keys;
      fp32 += config.heads + config.kv_head_count();
    }
  }
  return tokens * (elements * element_bytes + fp32 * int64_t{sizeof(float)});
}

}  // namespace narrowgauge::model
