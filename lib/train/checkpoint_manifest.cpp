#include "lib/train/checkpoint_manifest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>

#include "lib/base/checksum.h"
#include "lib/base/error.h"
#include "lib/base/file.h"

namespace narrowgauge::train {
namespace {

using nlohmann::json;

[[noreturn]] void throw_damaged(const std::filesystem::path& path, const std::string& fault) {
  throw UserError(fmt::format("{} is damaged: {}", path.string(), fault));
}

uint64_t checksum_of_file(const std::filesystem::path& path) {
  constexpr size_t kBlock = size_t{4} << 20;
  const FileDescriptor file = open_to_read(path);
  std::string block(kBlock, '\0');
  Checksum sum;
  for (;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io_error("read", path, errno);
    if (got == 0) return sum.value();
    sum.update(block.data(), static_cast<size_t>(got));
  }
}

io::WrittenFile parse_entry(const std::filesystem::path& path, const std::string& name, const json& entry) {
  const bool plain = std::filesystem::path(name).filename() == name && name != "." && name != "..";
  if (!plain || !entry.is_object() || !entry.contains("bytes") || !entry["bytes"].is_number_unsigned() ||
      !entry.contains("xxh3_64") || !entry["xxh3_64"].is_string()) {
    throw_damaged(path, fmt::format("its entry of \"{}\" is malformed", name));
  }
  const auto& digits = entry["xxh3_64"].get_ref<const std::string&>();
  io::WrittenFile file{entry["bytes"].get<int64_t>(), 0};
  const char* end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, file.checksum, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    throw_damaged(path, fmt::format("the checksum of \"{}\" is malformed", name));
  }
  return file;
}

}  // namespace

void write_manifest(const std::filesystem::path& folder, const Manifest& manifest) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (const auto& [name, file] : manifest) {
    files[name] = {{"bytes", file.bytes}, {"xxh3_64", checksum_hex(file.checksum)}};
  }
  atomic_write_file(folder / kManifestName, nlohmann::ordered_json{{"files", files}}.dump(2) + "\n");
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  const json root = json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("files") || !root["files"].is_object() || root["files"].empty()) {
    throw_damaged(path, "it is no JSON object with a list of files");
  }
  Manifest manifest;
  for (const auto& [name, entry] : root["files"].items()) manifest[name] = parse_entry(path, name, entry);
  return manifest;
}

void check_sizes(const std::filesystem::path& folder, const Manifest& manifest) {
  for (const auto& [name, file] : manifest) {
    std::error_code error;
    const uintmax_t bytes = std::filesystem::file_size(folder / name, error);
    if (error) throw UserError(fmt::format("{} is missing", (folder / name).string()));
    if (bytes != static_cast<uintmax_t>(file.bytes)) {
      throw_damaged(folder / name, fmt::format("it has {} bytes instead of {}", bytes, file.bytes));
    }
  }
}

void check_contents(const std::filesystem::path& folder, const Manifest& manifest) {
  check_sizes(folder, manifest);
  for (const auto& [name, file] : manifest) {
    const uint64_t found = checksum_of_file(folder / name);
    if (found != file.checksum) {
      throw_damaged(folder / name, fmt::format("its checksum is {} instead of {}", checksum_hex(found),
                                               checksum_hex(file.checksum)));
    }
  }
}

}  // namespace narrowgauge::train
