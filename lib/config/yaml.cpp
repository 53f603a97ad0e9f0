#include "lib/config/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "lib/base/error.h"
#include "lib/base/text.h"

namespace narrowgauge {
namespace {

// Items of a list are not entered: no key has nested lists, and an alias may lead back to its own list.
ConfigValue to_value(const YAML::Node& node, bool enter_list = true) {
  ConfigValue value;
  if (node.IsScalar()) {
    value.kind = node.Tag() == "!" ? ConfigValue::Kind::quoted : ConfigValue::Kind::plain;
    value.text = node.Scalar();
  } else if (node.IsSequence()) {
    value.kind = ConfigValue::Kind::list;
    if (!enter_list) return value;
    for (const YAML::Node& item : node) value.items.push_back(to_value(item, false));
  } else if (node.IsMap()) {
    value.kind = ConfigValue::Kind::section;
  }
  return value;
}

int64_t line_of(const std::string& text, size_t position) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(position), '\n');
}

// `line` counts from 1.
bool is_indented_by_tab(const std::string& text, int line) {
  std::istringstream lines(text);
  std::string found;
  for (int i = 0; i < line; ++i) std::getline(lines, found);
  return found.substr(0, found.find_first_not_of(" \t")).find('\t') != std::string::npos;
}

YAML::Node load(const std::string& yaml, const std::string& name) {
  // yaml-cpp would take it for the end of the file.
  if (const size_t zero = yaml.find('\0'); zero != std::string::npos) {
    throw UserError(
        fmt::format("{}:{}: a zero byte: this is no text file; name a YAML file", name, line_of(yaml, zero)));
  }
  try {
    // yaml-cpp misses a quote that stays open when white space ends the file.
    YAML::LoadAll(yaml.substr(0, yaml.find_last_not_of(" \t\r\n") + 1));
    const std::vector<YAML::Node> documents = YAML::LoadAll(yaml);
    if (documents.size() > 1)
      throw UserError(fmt::format("{}: holds {} YAML documents, expected one", name, documents.size()));
    return documents.empty() ? YAML::Node() : documents[0];
  } catch (const YAML::Exception& error) {
    const int line = error.mark.line + 1;
    std::string fault = error.msg;
    if (is_indented_by_tab(yaml, line)) fault = "a tab indents the line; use blanks";
    if (error.msg == YAML::ErrorMsg::EOF_IN_SCALAR) fault = "a quote stays open until the end of the file";
    throw UserError(fmt::format("{}:{}: malformed YAML: {}", name, line, fault));
  }
}

// Walks one map; every key must be a word that occurs once.
template <typename Visit>
void for_each_key(const YAML::Node& map, const std::string& name, const std::string& prefix,
                  const Visit& visit) {
  std::set<std::string> seen;
  for (const auto& pair : map) {
    const int line = pair.first.Mark().line + 1;
    if (!pair.first.IsScalar()) throw UserError(fmt::format("{}:{}: a key must be a word", name, line));
    const std::string key = pair.first.Scalar();
    if (!seen.insert(key).second) {
      throw UserError(fmt::format("{}:{}: {}{} is there twice: remove one", name, line, prefix, key));
    }
    visit(key, line, pair.second);
  }
}

// A key that stands where a section should: what is wrong with it, or "".
std::string misplaced_key(const std::string& name) {
  for (const ConfigSection& known : config_schema()) {
    for (const ConfigKey& key : known.keys) {
      if (key.path() == name || key.name == name) {
        return fmt::format("{} must stand as \"{}:\" below \"{}:\"", name, key.name, known.name);
      }
    }
  }
  return "";
}

// `where` is "NAME:LINE".
void check_section(const std::string& section, const YAML::Node& node, const std::string& where) {
  std::vector<std::string> sections;
  for (const ConfigSection& known : config_schema()) sections.push_back(known.name);
  if (std::find(sections.begin(), sections.end(), section) == sections.end()) {
    if (const std::string problem = misplaced_key(section); !problem.empty()) {
      throw UserError(fmt::format("{}: {}", where, problem));
    }
    throw UserError(fmt::format("{}: unknown section \"{}\"{}; the sections are {}", where, section,
                                did_you_mean(section, sections), join(sections)));
  }
  if (!node.IsMap() && !node.IsNull()) {
    throw UserError(
        fmt::format("{}: {} is a section: it needs indented \"key: value\" lines below it", where, section));
  }
}

}  // namespace

std::vector<ConfigEntry> read_yaml(const std::string& yaml, const std::string& name) {
  std::vector<ConfigEntry> entries;
  const YAML::Node root = load(yaml, name);
  if (!root.IsMap() && !root.IsNull()) {
    throw UserError(fmt::format("{}:{}: expected sections such as \"train:\" with keys below", name,
                                root.Mark().line + 1));
  }
  for_each_key(root, name, "section ", [&](const std::string& section, int line, const YAML::Node& node) {
    check_section(section, node, fmt::format("{}:{}", name, line));
    for_each_key(node, name, section + ".",
                 [&](const std::string& key, int key_line, const YAML::Node& value) {
                   entries.push_back({section, key, key_line, to_value(value)});
                 });
  });
  return entries;
}

ConfigValue read_yaml_list(const std::string& yaml, const std::string& where) {
  try {
    return to_value(YAML::Load(yaml));
  } catch (const YAML::Exception&) {
    throw UserError(fmt::format("{}: \"{}\" is no whole list: write it like [none, block]", where, yaml));
  }
}

}  // namespace narrowgauge
