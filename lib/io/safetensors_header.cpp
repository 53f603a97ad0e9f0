#include "lib/io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "lib/base/error.h"
#include "lib/io/dtype.h"

namespace narrowgauge::io {
namespace {

using nlohmann::json;

constexpr const char* kMetadata = "__metadata__";
constexpr size_t kMaxDimensions = 64;  // what ATen can copy

std::string quoted(const std::string& name) {
  return json(name).dump(-1, ' ', false, json::error_handler_t::replace);
}

// nlohmann keeps the last of two equal keys; here the second one is a fault, as is nesting deeper than the
// format has.
json parse_strict(std::string_view text, const std::filesystem::path& path) {
  std::vector<std::set<std::string>> open;  // the keys of every object that is not closed yet
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth > 2) throw_malformed(path, "its header is nested too deeply");
    }
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!open.back().insert(key).second) {
        throw_malformed(path, fmt::format("its header names {} twice", quoted(key)));
      }
    }
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception&) {
    throw_malformed(path, "its header is no valid JSON");
  }
}

// One tensor's entry, with offsets relative to the data.
class EntryReader {
 public:
  EntryReader(const std::filesystem::path& path, const std::string& name, const json& entry)
      : path_(path), name_(name), entry_(entry) {}

  [[nodiscard]] TensorInfo read(int64_t data_bytes) const {
    if (!entry_.is_object()) fail("its entry is no object");
    TensorInfo info{read_dtype(), read_shape(), 0, 0};
    const std::vector<int64_t> range = read_list("data_offsets");
    if (range.size() != 2) fail("data_offsets must be two numbers");
    info.begin = range[0];
    info.end = range[1];
    if (info.begin > info.end || info.end > data_bytes) {
      fail(fmt::format("its byte range {}-{} does not lie in the {} bytes of data", info.begin, info.end,
                       data_bytes));
    }
    const int64_t bytes = needed_bytes(info);
    if (bytes != info.end - info.begin) {
      fail(fmt::format("dtype and shape need {} bytes, its range has {}", bytes, info.end - info.begin));
    }
    return info;
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const {
    throw_malformed(path_, fmt::format("tensor {}: {}", quoted(name_), fault));
  }

  [[nodiscard]] at::ScalarType read_dtype() const {
    const auto found = entry_.find("dtype");
    if (found == entry_.end() || !found->is_string()) fail("it has no dtype");
    const auto& name = found->get_ref<const std::string&>();
    const auto dtype = dtype_from_name(name);
    if (!dtype) fail(fmt::format("dtype {} is not known", quoted(name)));
    return *dtype;
  }

  [[nodiscard]] std::vector<int64_t> read_list(const char* key) const {
    const auto found = entry_.find(key);
    if (found == entry_.end() || !found->is_array()) fail(fmt::format("it has no list {}", key));
    std::vector<int64_t> values;
    for (const json& value : *found) {
      if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
        fail(fmt::format("{} must hold whole numbers from 0 to 2^63 - 1", key));
      }
      values.push_back(value.get<int64_t>());
    }
    return values;
  }

  [[nodiscard]] std::vector<int64_t> read_shape() const {
    std::vector<int64_t> shape = read_list("shape");
    if (shape.size() > kMaxDimensions) {
      fail(fmt::format("its shape has {} dimensions, at most {} are known", shape.size(), kMaxDimensions));
    }
    return shape;
  }

  [[nodiscard]] int64_t needed_bytes(const TensorInfo& info) const {
    auto bytes = static_cast<int64_t>(c10::elementSize(info.dtype));
    bool empty = false;
    for (const int64_t size : info.shape) {
      empty |= size == 0;
      // Sizes beside a zero count too: strides are their products.
      if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) fail("its shape is too large");
    }
    return empty ? 0 : bytes;
  }

  const std::filesystem::path& path_;
  const std::string& name_;
  const json& entry_;
};

void check_metadata(const std::filesystem::path& path, const json& metadata) {
  const bool valid = metadata.is_object() && std::all_of(metadata.begin(), metadata.end(),
                                                         [](const json& v) { return v.is_string(); });
  if (!valid) throw_malformed(path, "__metadata__ must map names to strings");
}

// The ranges together must cover the data, each byte once.
void check_coverage(const std::filesystem::path& path, const std::map<std::string, TensorInfo>& tensors,
                    int64_t data_bytes) {
  std::vector<const std::pair<const std::string, TensorInfo>*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  int64_t covered = 0;
  for (const auto* tensor : order) {
    const int64_t begin = tensor->second.begin;
    if (begin != covered) {
      throw_malformed(path,
                      fmt::format("tensor {}: its bytes start at {}, {} where the one before it ends ({})",
                                  quoted(tensor->first), begin,
                                  begin < covered ? "inside another tensor, before" : "beyond", covered));
    }
    covered = tensor->second.end;
  }
  if (covered != data_bytes) {
    throw_malformed(path, fmt::format("its tensors end at byte {} of {} bytes of data", covered, data_bytes));
  }
}

}  // namespace

void throw_malformed(const std::filesystem::path& path, const std::string& fault) {
  throw UserError(fmt::format("{} is not a valid safetensors file: {} (copy or download it again)",
                              path.string(), fault));
}

std::map<std::string, TensorInfo> parse_header(std::string_view json_text, int64_t data_begin,
                                               int64_t file_bytes, const std::filesystem::path& path) {
  const json header = parse_strict(json_text, path);
  if (!header.is_object()) throw_malformed(path, "its header is no JSON object");
  const int64_t data_bytes = file_bytes - data_begin;
  std::map<std::string, TensorInfo> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadata) {
      check_metadata(path, entry);
    } else {
      tensors.emplace(name, EntryReader(path, name, entry).read(data_bytes));
    }
  }
  check_coverage(path, tensors, data_bytes);
  for (auto& [name, info] : tensors) {
    info.begin += data_begin;
    info.end += data_begin;
  }
  return tensors;
}

std::string format_header(const std::vector<NamedTensor>& tensors,
                          const std::map<std::string, std::string>& metadata,
                          std::optional<at::ScalarType> dtype) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::set<std::string> names;
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (name == kMetadata || !names.insert(name).second) {
      throw std::invalid_argument("safetensors: tensor name " + name + " is given twice or reserved");
    }
    const at::ScalarType stored = dtype.value_or(tensor.scalar_type());
    const int64_t end = offset + tensor.numel() * static_cast<int64_t>(c10::elementSize(stored));
    header[name] = {
        {"dtype", dtype_name(stored)}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((kHeaderLengthBytes - text.size() % kHeaderLengthBytes) % kHeaderLengthBytes, ' ');
  std::string length(kHeaderLengthBytes, '\0');
  for (size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return length + text;
}

}  // namespace narrowgauge::io
