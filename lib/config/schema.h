#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/config/config.h"

namespace narrowgauge {

// What a YAML file (or --set) says for one key, before its type is known.
struct ConfigValue {
  enum class Kind { missing, plain, quoted, list, section };
  Kind kind = Kind::missing;
  std::string text;                // plain and quoted
  std::vector<ConfigValue> items;  // list
};

// One key: the only place that knows how it is read, checked, written and explained.
struct ConfigKey {
  std::string section;
  std::string name;
  std::string type;  // "integer", "number", "true or false", "text", ...
  std::string unit;  // "" when it has none
  std::string rule;  // what values are allowed, in words; "" for any
  std::string help;  // one sentence
  // Stores the value and returns "", or leaves the config alone and returns what is wrong with the value.
  std::function<std::string(Config&, const ConfigValue&)> read;
  // The value as YAML that `read` takes back exactly.
  std::function<std::string(const Config&)> write;

  [[nodiscard]] std::string path() const { return section + "." + name; }
};

struct ConfigSection {
  std::string name;
  std::string help;
  std::vector<ConfigKey> keys;
};

// Every section with every key, in the order of the documentation. Built once.
const std::vector<ConfigSection>& config_schema();

// One a component, in its own source (model_config.cpp, ...).
ConfigSection model_section();
ConfigSection data_section();
ConfigSection optim_section();
ConfigSection train_section();
ConfigSection memory_section();
ConfigSection log_section();

// The rules that join several keys: one sentence for each one that `config` breaks.
std::vector<std::string> broken_rules(const Config& config);

}  // namespace narrowgauge
