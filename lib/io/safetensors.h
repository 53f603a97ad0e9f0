#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/file.h"

namespace narrowgauge::io {

struct TensorInfo {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  int64_t begin;  // bytes from the start of the file
  int64_t end;
};

// A safetensors file opened for reading. The header is validated before anything is used: length, JSON,
// duplicate names, dtypes, shapes against byte ranges, overlaps, holes, ranges beyond the file. UserError
// names file, tensor and fault.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  [[nodiscard]] bool contains(const std::string& name) const { return tensors_.count(name) != 0; }
  // UserError when absent.
  [[nodiscard]] const TensorInfo& info(const std::string& name) const;
  // A CPU tensor of the file's dtype. UserError when absent.
  [[nodiscard]] at::Tensor read(const std::string& name) const;
  // Copies into `out` (contiguous, any device, same shape, dtype converted) through a bounded staging buffer.
  // Returns when the values are there. UserError when absent or of another shape.
  void read_into(const std::string& name, const at::Tensor& out) const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::map<std::string, TensorInfo> tensors_;
};

using NamedTensor = std::pair<std::string, at::Tensor>;

struct WrittenFile {
  int64_t bytes;
  uint64_t checksum;  // XXH3-64 of the whole file
};

// Writes tensors (any device, contiguous) in the given order through a bounded staging buffer and fsyncs.
// `metadata` goes into "__metadata__". With `dtype` every tensor is converted on the way. UserError when the
// disk is full or the path cannot be written (the partial file is removed).
WrittenFile write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {},
                              std::optional<at::ScalarType> dtype = std::nullopt);

}  // namespace narrowgauge::io
