#include <algorithm>
#include <set>

#include "lib/plan/choice.h"
#include "lib/plan/rates.h"

namespace narrowgauge::plan {

std::vector<Probe> probes(const Config& config, const std::vector<int64_t>& contexts,
                          const std::vector<int64_t>& micro_batches) {
  const ModelConfig& model = config.model;
  const int64_t low = config.train.dtype == "fp32" || config.memory.grad_dtype == "fp32" ? 4 : 2;
  std::set<Probe> all;
  const auto product = [&](int64_t rows, int64_t in, int64_t out, int64_t gradient) {
    all.insert({.work = Work::product, .rows = rows, .shape = {in, out, 0, 0}});
    all.insert({.work = Work::product_input_grad, .rows = rows, .shape = {in, out, 0, 0}});
    all.insert({.work = Work::product_weight_grad, .rows = rows, .shape = {in, out, gradient, 0}});
  };
  for (const int64_t context : contexts) {
    for (const int64_t batch : micro_batches) {
      const int64_t tokens = batch * context;
      product(tokens, model.hidden_size, model.qkv_width(), low);
      product(tokens, model.query_width(), model.hidden_size, low);
      product(tokens, model.hidden_size, 2 * model.ffn_size, low);
      product(tokens, model.ffn_size, model.hidden_size, low);
      product(std::min(tokens, config.memory.loss_chunk), model.hidden_size, model.vocab_size, 4);
      const Work backward =
          assumes_determinism(config) ? Work::attention_backward_deterministic : Work::attention_backward;
      for (const Work work : {Work::attention, backward}) {
        all.insert({.work = work,
                    .rows = batch,
                    .shape = {context, model.heads, model.kv_head_count(), model.head_size()}});
      }
    }
  }
  for (const int64_t bytes : {int64_t{1} << 26, int64_t{1} << 30}) {
    all.insert({.work = Work::traffic, .rows = bytes, .shape = {}});
  }
  all.insert({.work = Work::launch, .rows = 1000, .shape = {}});
  return {all.begin(), all.end()};
}

}  // namespace narrowgauge::plan
