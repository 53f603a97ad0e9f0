#pragma once
#include <filesystem>
#include <string>

namespace narrowgauge {

// $XDG_CACHE_HOME/narrowgauge/NAME, else ~/.cache/narrowgauge/NAME; empty without a home. The folder may be
// missing.
std::filesystem::path cache_file(const std::string& name);

// What the file holds; "" when it is missing, or cannot be read, with a warning.
std::string read_cache_file(const std::filesystem::path& path);

// Replaces the file whole, its folder made when missing. A failure is a warning; an empty path does nothing.
void write_cache_file(const std::filesystem::path& path, const std::string& text);

}  // namespace narrowgauge
