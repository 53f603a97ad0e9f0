#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>

#include "lib/base/error.h"
#include "lib/io/dtype.h"
#include "lib/io/safetensors.h"
#include "lib/io/safetensors_header.h"
#include "lib/io/staging.h"

namespace narrowgauge::io {
namespace {

// Reads exactly `bytes` bytes at `offset`.
void read_exactly(const FileDescriptor& file, const std::filesystem::path& path, int64_t offset, void* out,
                  int64_t bytes) {
  auto* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got =
        ::pread(file.get(), next, static_cast<size_t>(std::min(bytes, kStagingBytes)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io_error("read", path, errno);
    if (got == 0) throw_malformed(path, fmt::format("it ends at byte {}", offset));
    next += got;
    offset += got;
    bytes -= got;
  }
}

int64_t file_bytes(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_io_error("read", path, errno);
  if (!S_ISREG(status.st_mode)) throw UserError(fmt::format("{} is not a regular file", path.string()));
  return status.st_size;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path), file_(open_to_read(path)) {
  const int64_t bytes = file_bytes(file_, path_);
  if (bytes < kHeaderLengthBytes) throw_malformed(path_, fmt::format("it has only {} bytes", bytes));
  unsigned char raw[kHeaderLengthBytes];
  read_exactly(file_, path_, 0, raw, kHeaderLengthBytes);
  uint64_t length = 0;
  for (int i = 0; i < kHeaderLengthBytes; ++i) length |= uint64_t{raw[i]} << (8 * i);
  if (length > kMaxHeaderBytes) {
    throw_malformed(
        path_, fmt::format("its header claims {} bytes, at most {} are allowed", length, kMaxHeaderBytes));
  }
  const int64_t data_begin = kHeaderLengthBytes + static_cast<int64_t>(length);
  if (data_begin > bytes) {
    throw_malformed(path_, fmt::format("its header claims {} bytes, the file has {}", length, bytes));
  }
  std::string header(length, '\0');
  read_exactly(file_, path_, kHeaderLengthBytes, header.data(), static_cast<int64_t>(length));
  tensors_ = parse_header(header, data_begin, bytes, path_);
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw UserError(fmt::format("{} has no tensor \"{}\"", path_.string(), name));
  return found->second;
}

at::Tensor SafetensorsFile::read(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  at::Tensor out = at::empty(tensor.shape, at::TensorOptions().dtype(tensor.dtype));
  read_into(name, out);
  return out;
}

void SafetensorsFile::read_into(const std::string& name, const at::Tensor& out) const {
  const TensorInfo& tensor = info(name);
  if (out.sizes() != tensor.shape) {
    throw UserError(fmt::format("{}: tensor \"{}\" has shape {}, expected is {}", path_.string(), name,
                                shape_text(tensor.shape), shape_text(out.sizes())));
  }
  if (!out.is_contiguous()) throw std::invalid_argument("read_into needs a contiguous tensor: " + name);
  if (out.is_cpu() && out.scalar_type() == tensor.dtype) {
    read_exactly(file_, path_, tensor.begin, out.data_ptr(), tensor.end - tensor.begin);
    return;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor flat = out.view(-1);
  const auto element = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  const int64_t slice = std::min(flat.numel(), kStagingBytes / element);
  const at::Tensor staging = at::empty({slice}, at::TensorOptions().dtype(tensor.dtype));
  for (int64_t done = 0; done < flat.numel(); done += slice) {
    const int64_t count = std::min(slice, flat.numel() - done);
    read_exactly(file_, path_, tensor.begin + done * element, staging.data_ptr(), count * element);
    flat.narrow(0, done, count).copy_(staging.narrow(0, 0, count));
  }
}

}  // namespace narrowgauge::io
