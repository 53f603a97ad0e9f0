#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "lib/config/data_config.h"
#include "lib/config/log_config.h"
#include "lib/config/memory_config.h"
#include "lib/config/model_config.h"
#include "lib/config/optim_config.h"
#include "lib/config/train_config.h"

namespace narrowgauge {

struct Config {
  ModelConfig model;
  DataConfig data;
  OptimConfig optim;
  TrainConfig train;
  MemoryConfig memory;
  LogConfig log;
};

// Reads a YAML file, which must set a key, then applies overrides of the form "train.steps=200" in order,
// then checks every rule. Throws UserError: unknown keys with file, line and the nearest known key; wrong
// types; values out of range; all broken cross-field rules at once (one line, separated by "; ").
Config load_config(const std::filesystem::path& file, const std::vector<std::string>& overrides);

// The same from text; `name` stands for the file in messages.
Config parse_config(const std::string& yaml, const std::string& name,
                    const std::vector<std::string>& overrides);

// Every key with its value, as YAML that load_config reads back to the same Config.
std::string dump_config(const Config& config);

// Every key: type, default, unit, rule and one sentence, as plain text or Markdown.
std::string explain_config(bool markdown);

}  // namespace narrowgauge
