#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace narrowgauge::data {

// Length of `text` without an unfinished character at its end (at most three bytes less).
size_t whole_characters(std::string_view text);

// Every byte that is no part of valid UTF-8 becomes U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace narrowgauge::data
