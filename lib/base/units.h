#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace narrowgauge {

// "0 B", "512 B", "1.5 KiB", "13.2 GiB": one decimal from KiB on. Negative amounts keep their sign.
std::string format_bytes(int64_t bytes);

// Reads "14.5GiB", "512 MiB", "16GB" (decimal), "4096" or "4096B"; upper or lower case. Throws UserError that
// names the text and the accepted forms when it is anything else, negative or beyond 2^63 - 1.
int64_t parse_bytes(std::string_view text);

// "999", "1.5K", "52.4K", "977M", "1.07B", "2.5T": three significant digits at most, decimal prefixes.
std::string format_count(double count);

// "0.4s", "12s", "3m05s", "1h02m", "2d03h". "?" for a negative, infinite or NaN duration.
std::string format_duration(double seconds);

// format_count with "/s": "76.3K/s".
std::string format_rate(double per_second);

}  // namespace narrowgauge
