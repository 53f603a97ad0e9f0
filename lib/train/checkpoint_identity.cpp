#include "lib/train/checkpoint_identity.h"

#include <fmt/format.h>

#include <map>
#include <sstream>

#include "lib/base/checksum.h"
#include "lib/base/error.h"
#include "lib/base/text.h"

namespace narrowgauge::train {
namespace {

template <typename Value>
void add(std::string& text, const char* key, const Value& value) {
  text += fmt::format("{}={}\n", key, value);
}

std::string model_text(const Config& config) {
  const ModelConfig& model = config.model;
  std::string text;
  add(text, "model.vocab_size", model.vocab_size);
  add(text, "model.layers", model.layers);
  add(text, "model.hidden_size", model.hidden_size);
  add(text, "model.heads", model.heads);
  add(text, "model.kv_heads", model.kv_head_count());
  add(text, "model.head_dim", model.head_size());
  add(text, "model.ffn_size", model.ffn_size);
  add(text, "model.rope_theta", model.rope_theta);
  add(text, "model.norm_eps", model.norm_eps);
  add(text, "model.qk_norm", model.qk_norm);
  add(text, "model.tie_embeddings", model.tie_embeddings);
  add(text, "train.dtype", config.train.dtype);
  return text;
}

std::string optimizer_text(const OptimConfig& optim) {
  std::string text;
  add(text, "optim.state", optim.state);
  add(text, "optim.embedding_state", optim.embedding_state);
  add(text, "optim.min_8bit_size", optim.min_8bit_size);
  add(text, "optim.master", optim.master);
  return text;
}

// The fraction counts only where it cuts the training data.
std::string order_text(const Config& config) {
  std::string text;
  add(text, "data.context", config.data.context);
  add(text, "data.document_mask", config.data.document_mask);
  add(text, "data.end_of_document", config.data.end_of_document);
  add(text, "data.shuffle", config.data.shuffle);
  add(text, "data.val_fraction", config.data.val.empty() ? config.data.val_fraction : 0.0);
  add(text, "train.seed", config.train.seed);
  return text;
}

std::map<std::string, std::string> parse_lines(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) values[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return values;
}

void compare(const std::string& saved_text, const std::string& now_text,
             std::vector<std::string>& differences) {
  const auto saved = parse_lines(saved_text);
  for (const auto& [key, value] : parse_lines(now_text)) {
    const auto found = saved.find(key);
    const std::string before = found == saved.end() ? "unknown" : found->second;
    if (before != value) differences.push_back(fmt::format("{} was {}, now {}", key, before, value));
  }
}

std::string fingerprint(uint64_t value) { return value == 0 ? "none" : checksum_hex(value); }

}  // namespace

RunIdentity run_identity(const Config& config, uint64_t data, uint64_t tokenizer) {
  return {.data = data,
          .tokenizer = tokenizer,
          .model = model_text(config),
          .optimizer = optimizer_text(config.optim),
          .order = order_text(config)};
}

void require_same_run(const RunIdentity& saved, const RunIdentity& now, bool allow_data_change) {
  std::vector<std::string> fixed;
  compare(saved.model, now.model, fixed);
  compare(saved.optimizer, now.optimizer, fixed);
  if (saved.tokenizer != now.tokenizer) {
    fixed.push_back(fmt::format("the tokenizer (fingerprint {}, now {})", fingerprint(saved.tokenizer),
                                fingerprint(now.tokenizer)));
  }
  std::vector<std::string> data;
  if (saved.data != now.data) {
    data.push_back(
        fmt::format("the data (fingerprint {}, now {})", fingerprint(saved.data), fingerprint(now.data)));
  }
  compare(saved.order, now.order, data);
  if (!fixed.empty()) {
    if (!allow_data_change) fixed.insert(fixed.end(), data.begin(), data.end());
    throw UserError(
        fmt::format("the run cannot be resumed, since this changed: {}; undo it, or start another run "
                    "folder",
                    join(fixed, "; ")));
  }
  if (!data.empty() && !allow_data_change) {
    throw UserError(
        fmt::format("the run cannot be resumed, since this changed: {}; undo it, or allow it with "
                    "--allow-data-change",
                    join(data, "; ")));
  }
}

}  // namespace narrowgauge::train
