#include <algorithm>
#include <array>
#include <string_view>

#include "lib/base/text.h"
#include "lib/config/schema.h"
#include "lib/plan/tuned.h"

namespace narrowgauge::plan {
namespace {

constexpr std::array<std::string_view, 17> kCounted{
    "data.context",          "data.document_mask",        "optim.state",
    "optim.embedding_state", "optim.min_8bit_size",       "optim.master",
    "train.micro_batch",     "train.tokens_per_step",     "train.dtype",
    "train.deterministic",   "train.attention",           "train.cuda_graphs",
    "train.tune_kernels",    "memory.recompute",          "memory.loss_chunk",
    "memory.grad_dtype",     "memory.attention_workspace"};

bool counts(const ConfigKey& key) {
  if (key.section == "model") return !key.name.starts_with("init");
  return std::find(kCounted.begin(), kCounted.end(), key.path()) != kCounted.end();
}

}  // namespace

std::string tuned_config(const Config& config) {
  std::vector<std::string> parts;
  for (const ConfigSection& section : config_schema()) {
    for (const ConfigKey& key : section.keys) {
      if (counts(key)) parts.push_back(key.path() + "=" + key.write(config));
    }
  }
  parts.emplace_back(config.train.eval_every > 0 ? "evaluates" : "never evaluates");
  parts.emplace_back(config.train.sample_every > 0 ? "samples" : "never samples");
  return join(parts, "; ");
}

}  // namespace narrowgauge::plan
