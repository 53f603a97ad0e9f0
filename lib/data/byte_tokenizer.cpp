#include "lib/data/byte_tokenizer.h"

#include <algorithm>

#include "lib/base/checksum.h"
#include "lib/base/file.h"

namespace narrowgauge::data {

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  std::transform(text.begin(), text.end(), ids.begin(),
                 [](char byte) { return kFirstByte + static_cast<unsigned char>(byte); });
  return ids;
}

std::string ByteTokenizer::decode(const std::vector<int32_t>& ids) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) append_bytes(id, text);
  return text;
}

void ByteTokenizer::append_bytes(int32_t id, std::string& out) const {
  if (id >= kFirstByte && id < kVocabSize) {
    out += static_cast<char>(id - kFirstByte);
  } else if (id < 0 || id >= kVocabSize) {
    out += "\xEF\xBF\xBD";
  }
}

uint64_t ByteTokenizer::hash() const { return checksum("byte"); }

void ByteTokenizer::save(const std::filesystem::path& folder) const {
  atomic_write_file(folder / kFileName, "ids 0 padding, 1 beginning, 2 end of document, 3 + b byte b\n");
}

}  // namespace narrowgauge::data
