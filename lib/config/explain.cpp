#include <fmt/format.h>

#include "lib/config/schema.h"

namespace narrowgauge {
namespace {

std::string plain_key(const ConfigKey& key, const std::string& fallback) {
  std::string text = fmt::format("{}\n    {}", key.path(), key.type);
  if (!key.unit.empty()) text += fmt::format(" ({})", key.unit);
  text += fmt::format(", default {}", fallback);
  if (!key.rule.empty()) text += fmt::format("; {}", key.rule);
  return text + fmt::format("\n    {}\n", key.help);
}

std::string markdown_key(const ConfigKey& key, const std::string& fallback) {
  return fmt::format("| `{}` | {} | `{}` | {} | {} | {} |\n", key.path(), key.type, fallback, key.unit,
                     key.rule, key.help);
}

}  // namespace

std::string explain_config(bool markdown) {
  const Config defaults;
  std::string text;
  if (markdown) {
    text =
        "# Configuration\n\n"
        "Every key of a config file. Written by `narrowgauge config --explain --markdown`; a test keeps it "
        "true.\n"
        "Any key can be set on the command line, too: `--set train.steps=200`.\n";
  }
  for (const ConfigSection& section : config_schema()) {
    text += markdown ? fmt::format(
                           "\n## {}\n{}\n\n| key | type | default | unit | allowed | meaning |\n"
                           "|---|---|---|---|---|---|\n",
                           section.name, section.help)
                     : fmt::format("{}{}: {}\n\n", text.empty() ? "" : "\n", section.name, section.help);
    for (const ConfigKey& key : section.keys) {
      const std::string fallback = key.write(defaults);
      text += markdown ? markdown_key(key, fallback) : plain_key(key, fallback);
    }
  }
  return text;
}

}  // namespace narrowgauge
