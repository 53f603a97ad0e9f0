#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "lib/base/checksum.h"
#include "lib/io/safetensors.h"
#include "lib/io/safetensors_header.h"
#include "lib/io/staging.h"

namespace narrowgauge::io {
namespace {

// A file being written, and the checksum of what went into it.
class Output {
 public:
  explicit Output(const std::filesystem::path& path) : path_(path), file_(open_to_write(path)) {}

  void write(const void* data, int64_t bytes) {
    write_all(file_.get(), data, static_cast<size_t>(bytes), path_);
    checksum_.update(data, static_cast<size_t>(bytes));
    bytes_ += bytes;
  }

  WrittenFile finish() {
    if (::fsync(file_.get()) != 0) throw_io_error("write", path_, errno);
    return {bytes_, checksum_.value()};
  }

 private:
  const std::filesystem::path& path_;
  FileDescriptor file_;
  Checksum checksum_;
  int64_t bytes_ = 0;
};

void write_tensor(Output& output, const at::Tensor& tensor, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = tensor.view(-1);
  const bool direct = tensor.is_cpu() && tensor.scalar_type() == dtype;
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t slice = std::min(flat.numel(), kStagingBytes / element);
  const at::Tensor staging = direct ? at::Tensor() : at::empty({slice}, at::TensorOptions().dtype(dtype));
  for (int64_t done = 0; done < flat.numel(); done += slice) {
    const int64_t count = std::min(slice, flat.numel() - done);
    at::Tensor part = flat.narrow(0, done, count);
    if (!direct) part = staging.narrow(0, 0, count).copy_(part);
    output.write(part.const_data_ptr(), count * element);
  }
}

}  // namespace

WrittenFile write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              std::optional<at::ScalarType> dtype) {
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_contiguous())
      throw std::invalid_argument("write_safetensors needs contiguous tensors: " + name);
  }
  const std::string header = format_header(tensors, metadata, dtype);
  Output output(path);
  try {
    output.write(header.data(), static_cast<int64_t>(header.size()));
    for (const auto& [name, tensor] : tensors)
      write_tensor(output, tensor, dtype.value_or(tensor.scalar_type()));
    return output.finish();
  } catch (...) {
    remove_tree(path);
    throw;
  }
}

}  // namespace narrowgauge::io
