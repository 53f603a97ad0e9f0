#include "lib/config/key_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "lib/base/error.h"
#include "lib/base/text.h"
#include "lib/base/units.h"

namespace narrowgauge {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

// Members are reached through a mutable config; writing a value does not change it.
template <typename T>
T value_of(const ConfigMember<T>& at, const Config& config) {
  Config copy = config;
  return at(copy);
}

std::string_view without_plus(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

std::string parse_integer(const ConfigValue& value, int64_t& out) {
  if (value.kind == ConfigValue::Kind::plain) {
    const std::string_view text = without_plus(value.text);
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, out);
    if (error == std::errc::result_out_of_range) {
      return fmt::format("{} does not fit into 64 bits", describe(value));
    }
    if (error == std::errc() && rest == end) return "";
  }
  return fmt::format("{} is no integer (expected digits only, like 100)", describe(value));
}

std::string parse_number(const ConfigValue& value, double& out) {
  constexpr std::array<std::string_view, 4> kSpecial{".nan", ".inf", "+.inf", "-.inf"};  // YAML's spelling
  if (value.kind == ConfigValue::Kind::plain) {
    std::string lower = value.text;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    const std::string_view text = without_plus(lower);
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, out);
    const bool special = std::find(kSpecial.begin(), kSpecial.end(), lower) != kSpecial.end();
    if (error == std::errc::result_out_of_range) {
      return fmt::format("{} is too large or too small for a 64-bit number", describe(value));
    }
    if (special || (error == std::errc() && rest == end && !std::isfinite(out))) {
      return fmt::format("{} is not finite (expected a number)", describe(value));
    }
    if (error == std::errc() && rest == end) return "";
  }
  return fmt::format("{} is no number (expected one like 0.1 or 3e-4)", describe(value));
}

bool is_word(const ConfigValue& value, std::string_view word) {
  return value.kind == ConfigValue::Kind::plain && value.text == word;
}

bool is_text(const ConfigValue& value) {
  return value.kind == ConfigValue::Kind::plain || value.kind == ConfigValue::Kind::quoted;
}

std::string double_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace

bool Range::holds(double value) const {
  return (above ? value > least : value >= least) && (below ? value < most : value <= most);
}

std::string Range::rule() const {
  std::string rule;
  if (std::isfinite(least)) {
    rule = fmt::format("{}{}", above ? "above " : std::isfinite(most) ? "from " : "", least);
    if (!above && !std::isfinite(most)) rule += " or more";
  }
  if (std::isfinite(most)) {
    rule += fmt::format("{}{} {}",
                        rule.empty() ? ""
                        : above      ? ", "
                                     : " ",
                        below   ? "to below"
                        : above ? "up to"
                                : "to",
                        most);
  }
  return rule;
}

std::string describe(const ConfigValue& value) {
  switch (value.kind) {
    case ConfigValue::Kind::missing:
      return "nothing";
    case ConfigValue::Kind::list:
      return "a list";
    case ConfigValue::Kind::section:
      return "a section";
    default:
      return fmt::format("\"{}\"", value.text);
  }
}

ConfigKey integer_key(const ConfigMember<int64_t>& at, Range range, bool automatic) {
  ConfigKey key;
  key.type = automatic ? "integer or auto" : "integer";
  key.rule = automatic ? "auto, or " + range.rule() : range.rule();
  key.read = [=, rule = key.rule](Config& config, const ConfigValue& value) -> std::string {
    int64_t number = 0;
    if (!automatic || !is_word(value, "auto")) {
      if (std::string problem = parse_integer(value, number); !problem.empty()) return problem;
      if (!range.holds(static_cast<double>(number))) {
        return fmt::format("{} is out of range (allowed: {})", number, rule);
      }
    }
    at(config) = number;
    return "";
  };
  key.write = [=](const Config& config) {
    const int64_t number = value_of(at, config);
    return automatic && number == 0 ? "auto" : fmt::format("{}", number);
  };
  return key;
}

ConfigKey bytes_key(const ConfigMember<int64_t>& at, bool automatic) {
  ConfigKey key;
  key.type = automatic ? "bytes or auto" : "bytes";
  key.rule = automatic ? "auto, or an amount above 0 like 14.5GiB" : "an amount like 544MiB";
  key.read = [=, rule = key.rule](Config& config, const ConfigValue& value) -> std::string {
    int64_t bytes = 0;
    if (!automatic || !is_word(value, "auto")) {
      if (!is_text(value))
        return fmt::format("{} is no amount of memory (allowed: {})", describe(value), rule);
      try {
        bytes = parse_bytes(value.text);
      } catch (const UserError& error) {
        return error.what();
      }
      if (automatic && bytes == 0)
        return fmt::format("{} is out of range (allowed: {})", describe(value), rule);
    }
    at(config) = bytes;
    return "";
  };
  key.write = [=](const Config& config) {
    const int64_t bytes = value_of(at, config);
    if (automatic && bytes == 0) return std::string("auto");
    return bytes % kMebibyte == 0 ? fmt::format("{}MiB", bytes / kMebibyte) : fmt::format("{}", bytes);
  };
  return key;
}

ConfigKey number_key(const ConfigMember<double>& at, Range range) {
  ConfigKey key;
  key.type = "number";
  key.rule = range.rule();
  key.read = [=, rule = key.rule](Config& config, const ConfigValue& value) -> std::string {
    double number = 0;
    if (std::string problem = parse_number(value, number); !problem.empty()) return problem;
    if (!range.holds(number)) return fmt::format("{} is out of range (allowed: {})", number, rule);
    at(config) = number;
    return "";
  };
  key.write = [=](const Config& config) { return fmt::format("{}", value_of(at, config)); };
  return key;
}

ConfigKey boolean_key(const ConfigMember<bool>& at) {
  ConfigKey key;
  key.type = "boolean";
  key.rule = "true or false";
  key.read = [=](Config& config, const ConfigValue& value) -> std::string {
    if (!is_word(value, "true") && !is_word(value, "false")) {
      return fmt::format("{} is neither true nor false", describe(value));
    }
    at(config) = value.text == "true";
    return "";
  };
  key.write = [=](const Config& config) -> std::string { return value_of(at, config) ? "true" : "false"; };
  return key;
}

ConfigKey text_key(const ConfigMember<std::string>& at) {
  ConfigKey key;
  key.type = "text";
  key.read = [=](Config& config, const ConfigValue& value) -> std::string {
    if (!is_text(value)) return fmt::format("{} is no text (an empty one is written \"\")", describe(value));
    at(config) = value.text;
    return "";
  };
  key.write = [=](const Config& config) { return double_quoted(value_of(at, config)); };
  return key;
}

ConfigKey choice_key(const ConfigMember<std::string>& at, const std::vector<std::string>& choices) {
  ConfigKey key;
  key.type = "word";
  key.rule = "one of " + join(choices);
  key.read = [=, rule = key.rule](Config& config, const ConfigValue& value) -> std::string {
    if (!is_text(value) || std::find(choices.begin(), choices.end(), value.text) == choices.end()) {
      return fmt::format("{} is not {}{}", describe(value), rule, did_you_mean(value.text, choices));
    }
    at(config) = value.text;
    return "";
  };
  key.write = [=](const Config& config) { return value_of(at, config); };
  return key;
}

}  // namespace narrowgauge
