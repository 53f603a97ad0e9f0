#pragma once
#include <filesystem>

namespace narrowgauge::data {

// UserError unless a prepared data folder may take the place of `target`: it is missing or an empty folder,
// or, with `overwrite`, a folder that holds nothing but shards and tokenizers.
void require_replaceable(const std::filesystem::path& target, bool overwrite);

}  // namespace narrowgauge::data
