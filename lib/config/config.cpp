#include "lib/config/config.h"

#include <fmt/format.h>

#include <string_view>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/text.h"
#include "lib/config/schema.h"
#include "lib/config/yaml.h"

namespace narrowgauge {
namespace {

const ConfigKey* find_key(std::string_view section, std::string_view name) {
  for (const ConfigSection& known : config_schema()) {
    if (known.name != section) continue;
    for (const ConfigKey& key : known.keys) {
      if (key.name == name) return &key;
    }
  }
  return nullptr;
}

// The nearest key of the same section, else the nearest of all.
std::string key_suggestion(const std::string& section, const std::string& name) {
  std::vector<std::string> here, paths;
  for (const ConfigSection& known : config_schema()) {
    for (const ConfigKey& key : known.keys) {
      if (known.name == section) here.push_back(key.name);
      if (key.name == name) return fmt::format(" (did you mean \"{}\"?)", key.path());
      paths.push_back(key.path());
    }
  }
  const std::string near = nearest_name(name, here);
  if (!near.empty()) return fmt::format(" (did you mean \"{}.{}\"?)", section, near);
  return here.empty() ? did_you_mean(section + "." + name, paths) : "";
}

void apply(Config& config, const std::string& section, const std::string& name, const ConfigValue& value,
           const std::string& where) {
  const ConfigKey* key = find_key(section, name);
  if (key == nullptr) {
    throw UserError(fmt::format("{}: unknown key {}.{}{}; narrowgauge config --explain lists all keys", where,
                                section, name, key_suggestion(section, name)));
  }
  if (const std::string problem = key->read(config, value); !problem.empty()) {
    throw UserError(fmt::format("{}: {}: {}", where, key->path(), problem));
  }
}

// "train.steps=200". Text is taken as it stands; only a value in brackets is read as YAML.
void apply_override(Config& config, const std::string& text) {
  const size_t equals = text.find('=');
  const size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals || dot == 0) {
    throw UserError(
        fmt::format("--set: \"{}\" must have the form SECTION.KEY=VALUE, like train.steps=200", text));
  }
  const std::string section = text.substr(0, dot), name = text.substr(dot + 1, equals - dot - 1);
  ConfigValue value{.kind = ConfigValue::Kind::plain, .text = text.substr(equals + 1), .items = {}};
  const ConfigKey* key = find_key(section, name);
  if (key != nullptr && key->type != "text" && value.text.starts_with('[')) {
    value = read_yaml_list(value.text, "--set: " + key->path());
  }
  apply(config, section, name, value, "--set");
}

}  // namespace

const std::vector<ConfigSection>& config_schema() {
  static const std::vector<ConfigSection> schema{model_section(), data_section(),   optim_section(),
                                                 train_section(), memory_section(), log_section()};
  return schema;
}

Config parse_config(const std::string& yaml, const std::string& name,
                    const std::vector<std::string>& overrides) {
  Config config;
  for (const ConfigEntry& entry : read_yaml(yaml, name)) {
    apply(config, entry.section, entry.name, entry.value, fmt::format("{}:{}", name, entry.line));
  }
  for (const std::string& text : overrides) apply_override(config, text);
  if (const auto problems = broken_rules(config); !problems.empty()) {
    throw UserError(fmt::format("{}: {}", name, join(problems, "; ")));
  }
  return config;
}

Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  const std::string yaml = read_file(file);
  if (read_yaml(yaml, file.string()).empty()) {
    throw UserError(
        fmt::format("{}: no key is set in it, and a config must say what to train; start from a copy of "
                    "configs/quickstart.yaml",
                    file.string()));
  }
  return parse_config(yaml, file.string(), overrides);
}

std::string dump_config(const Config& config) {
  std::string yaml;
  for (const ConfigSection& section : config_schema()) {
    yaml += section.name + ":\n";
    for (const ConfigKey& key : section.keys) yaml += fmt::format("  {}: {}\n", key.name, key.write(config));
  }
  return yaml;
}

}  // namespace narrowgauge
