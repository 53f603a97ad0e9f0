#include "lib/train/checkpoint_state.h"

#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/version.h"

namespace narrowgauge::train {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Both directions of state.json visit the same list of fields.
template <typename Visitor>
void visit_step_state(Visitor& visit, cuda::StepState& state) {
  visit("learning_rate", state.input.learning_rate);
  visit("inverse_tokens", state.input.inverse_tokens);
  visit("seed", state.input.seed);
  visit("data_step", state.input.step);
  visit("adam_step", state.adam_step);
  visit("skipped_total", state.skipped_total);
  visit("skipped_in_row", state.skipped_in_row);
  visit("grad_norm", state.grad_norm);
  visit("clip_factor", state.clip_factor);
  visit("bias_correction1", state.bias_correction1);
  visit("bias_correction2", state.bias_correction2);
  visit("skip", state.skip);
}

template <typename Visitor>
void visit_identity(Visitor& visit, RunIdentity& identity) {
  visit("data", identity.data);
  visit("tokenizer", identity.tokenizer);
  visit("model", identity.model);
  visit("optimizer", identity.optimizer);
  visit("order", identity.order);
}

template <typename Visitor>
void visit_position(Visitor& visit, CheckpointState& state) {
  visit("step", state.step);
  visit("tokens", state.tokens);
  visit("sequences", state.sequences);
}

struct Writer {
  ordered_json out = ordered_json::object();
  template <typename Value>
  void operator()(const char* key, const Value& value) {
    out[key] = value;
  }
  void operator()(const char* key, float value) {
    out[key] = fmt::format("{:08x}", std::bit_cast<uint32_t>(value));
  }
};

// json::at and get throw json::exception for what is missing or of another type.
struct Reader {
  const json& in;
  template <typename Value>
  void operator()(const char* key, Value& value) const {
    const json& found = in.at(key);
    if constexpr (std::is_integral_v<Value>) {
      if (!found.is_number_integer()) throw json::other_error::create(500, "not an integer", &found);
    }
    value = found.get<Value>();
  }
  void operator()(const char* key, float& value) const {
    const auto digits = in.at(key).get<std::string>();
    size_t used = 0;
    const unsigned long bits = std::stoul(digits, &used, 16);
    if (used != digits.size() || bits > UINT32_MAX) throw std::out_of_range(key);
    value = std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
};

}  // namespace

std::string format_state(const CheckpointState& state) {
  CheckpointState copy = state;
  Writer numbers;
  visit_step_state(numbers, copy.step_state);
  Writer identity;
  visit_identity(identity, copy.identity);
  Writer root;
  root("format", kCheckpointFormat);
  root("program", std::string("narrowgauge ") + kVersion);
  visit_position(root, copy);
  root("step_state", numbers.out);
  root("identity", identity.out);
  return root.out.dump(2) + "\n";
}

void parse_state(const std::string& text, const std::filesystem::path& path, CheckpointState& state) {
  try {
    const json root = json::parse(text);
    const auto format = root.at("format").get<int64_t>();
    if (format > kCheckpointFormat) {
      throw UserError(fmt::format("{} has format {}, this program reads {} at most: update narrowgauge",
                                  path.string(), format, kCheckpointFormat));
    }
    const Reader reader{root};
    visit_position(reader, state);
    const Reader numbers{root.at("step_state")};
    visit_step_state(numbers, state.step_state);
    const Reader identity{root.at("identity")};
    visit_identity(identity, state.identity);
  } catch (const json::exception& error) {
    throw UserError(fmt::format("{} is damaged: {}", path.string(), error.what()));
  } catch (const std::logic_error&) {  // of stoul
    throw UserError(fmt::format("{} is damaged: a number in step_state is malformed", path.string()));
  }
}

}  // namespace narrowgauge::train
