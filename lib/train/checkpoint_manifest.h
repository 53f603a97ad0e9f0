#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "lib/io/safetensors.h"

// manifest.json: the size and XXH3-64 of every other file of a checkpoint.
namespace narrowgauge::train {

inline constexpr const char* kManifestName = "manifest.json";

using Manifest = std::map<std::string, io::WrittenFile>;  // by file name

void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);

// UserError when it is missing or malformed.
Manifest read_manifest(const std::filesystem::path& folder);

// UserError that names the first file that is missing or has another size. Reads no file but the manifest.
void check_sizes(const std::filesystem::path& folder, const Manifest& manifest);

// check_sizes, then the checksum of every file: reads everything.
void check_contents(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace narrowgauge::train
