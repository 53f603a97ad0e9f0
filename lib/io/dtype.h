#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>

namespace narrowgauge::io {

// The dtype that a safetensors header calls F32, BF16, F16, F64, I64, I32, I16, I8, U8 or BOOL.
std::optional<at::ScalarType> dtype_from_name(std::string_view name);

// The reverse. std::invalid_argument for any other dtype.
const char* dtype_name(at::ScalarType dtype);

// "(2, 3)", for messages.
std::string shape_text(at::IntArrayRef shape);

}  // namespace narrowgauge::io
