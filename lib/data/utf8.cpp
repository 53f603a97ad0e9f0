#include "lib/data/utf8.h"

#include <algorithm>

namespace narrowgauge::data {
namespace {

unsigned byte_at(std::string_view text, size_t index) { return static_cast<unsigned char>(text[index]); }

// Bytes of the character that `lead` begins; 0 when none begins with it.
size_t length_from_lead(unsigned lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

// Bytes of the valid character at the start of `text`; 0 when there is none (Unicode 15, table 3-7).
size_t valid_character(std::string_view text) {
  const unsigned lead = byte_at(text, 0);
  const size_t length = length_from_lead(lead);
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xC0) != 0x80) return 0;
  }
  if (length < 3) return length;
  const unsigned second = byte_at(text, 1);
  const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                   (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return bad ? 0 : length;
}

}  // namespace

size_t whole_characters(std::string_view text) {
  const size_t most = std::min<size_t>(text.size(), 3);
  for (size_t back = 1; back <= most; ++back) {
    const unsigned byte = byte_at(text, text.size() - back);
    if ((byte & 0xC0) == 0x80) continue;
    return length_from_lead(byte) > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = valid_character(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

}  // namespace narrowgauge::data
