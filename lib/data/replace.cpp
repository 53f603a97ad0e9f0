#include "lib/data/replace.h"

#include <fmt/format.h>

#include "lib/base/error.h"
#include "lib/data/byte_tokenizer.h"
#include "lib/data/sentencepiece.h"
#include "lib/data/shard_format.h"

namespace narrowgauge::data {
namespace {

namespace fs = std::filesystem;

bool is_ours(const fs::path& path) {
  const auto name = path.filename();
  return path.extension() == kShardExtension || name == kSentencePieceFileName ||
         name == ByteTokenizer::kFileName;
}

}  // namespace

void require_replaceable(const fs::path& target, bool overwrite) {
  std::error_code ignored;
  const auto status = fs::status(target, ignored);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) {
    throw UserError(
        fmt::format("{}: a file is in the way of the folder to write; give another --out", target.string()));
  }
  if (fs::is_empty(target)) return;
  if (!overwrite) {
    throw UserError(fmt::format(
        "{}: the folder exists and is not empty; give another --out or add --overwrite", target.string()));
  }
  for (const auto& entry : fs::directory_iterator(target)) {
    if (!is_ours(entry.path())) {
      throw UserError(
          fmt::format("{}: --overwrite replaces only folders of token shards, but this one holds {}; give "
                      "another --out",
                      target.string(), entry.path().filename().string()));
    }
  }
}

}  // namespace narrowgauge::data
