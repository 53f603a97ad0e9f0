#pragma once
#include <string>
#include <vector>

#include "lib/config/schema.h"

namespace narrowgauge {

// One key of a file: where it stands and what it says.
struct ConfigEntry {
  std::string section;
  std::string name;
  int line = 0;
  ConfigValue value;
};

// The entries of a config in file order. UserError "NAME:LINE: ..." for malformed YAML, a section that is
// unknown, no map or there twice, and a key that is no plain word or there twice. Keys are not looked up.
std::vector<ConfigEntry> read_yaml(const std::string& yaml, const std::string& name);

// A flow list such as "[none, block]" of --set. UserError that begins with `where` when it is malformed.
ConfigValue read_yaml_list(const std::string& yaml, const std::string& where);

}  // namespace narrowgauge
