#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "lib/io/safetensors.h"

// The header of a safetensors file: 8 bytes with its length (little endian), then a JSON object that maps
// each name to dtype, shape and byte range (huggingface.co/docs/safetensors, "Format").
namespace narrowgauge::io {

inline constexpr int64_t kHeaderLengthBytes = 8;
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

// UserError: PATH is not a valid safetensors file, and why.
[[noreturn]] void throw_malformed(const std::filesystem::path& path, const std::string& fault);

// Reads and validates the JSON of a file of `file_bytes` bytes whose tensor data start at `data_begin`.
// Offsets in the result count from the start of the file. `path` is for messages.
std::map<std::string, TensorInfo> parse_header(std::string_view json, int64_t data_begin, int64_t file_bytes,
                                               const std::filesystem::path& path);

// Length and JSON, padded with spaces so that the data start at a multiple of 8. Ranges follow the order of
// `tensors`; with `dtype` they are those after conversion. std::invalid_argument for a name given twice.
std::string format_header(const std::vector<NamedTensor>& tensors,
                          const std::map<std::string, std::string>& metadata,
                          std::optional<at::ScalarType> dtype);

}  // namespace narrowgauge::io
