#include "lib/io/dtype.h"

#include <fmt/format.h>

#include <stdexcept>
#include <vector>

#include "lib/base/text.h"

namespace narrowgauge::io {
namespace {

struct Row {
  const char* name;
  at::ScalarType dtype;
};

constexpr Row kRows[] = {{"F32", at::kFloat},  {"BF16", at::kBFloat16}, {"F16", at::kHalf},
                         {"F64", at::kDouble}, {"I64", at::kLong},      {"I32", at::kInt},
                         {"I16", at::kShort},  {"I8", at::kChar},       {"U8", at::kByte},
                         {"BOOL", at::kBool}};

}  // namespace

std::optional<at::ScalarType> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

const char* dtype_name(at::ScalarType dtype) {
  for (const Row& row : kRows) {
    if (dtype == row.dtype) return row.name;
  }
  throw std::invalid_argument(std::string("safetensors has no name for dtype ") + c10::toString(dtype));
}

std::string shape_text(at::IntArrayRef shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return fmt::format("({})", join(sizes));
}

}  // namespace narrowgauge::io
