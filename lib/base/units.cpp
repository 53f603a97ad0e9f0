#include "lib/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "lib/base/error.h"

namespace narrowgauge {
namespace {

struct Unit {
  std::string_view name;  // lower case
  double bytes;
};

constexpr std::array<Unit, 14> kUnits{{{"", 1},
                                       {"b", 1},
                                       {"k", 1024},
                                       {"m", 1048576},
                                       {"g", 1073741824},
                                       {"t", 1099511627776},
                                       {"kib", 1024},
                                       {"mib", 1048576},
                                       {"gib", 1073741824},
                                       {"tib", 1099511627776},
                                       {"kb", 1e3},
                                       {"mb", 1e6},
                                       {"gb", 1e9},
                                       {"tb", 1e12}}};

[[noreturn]] void bad_bytes(std::string_view text) {
  throw UserError(
      fmt::format("\"{}\" is no amount of memory: write it like 14.5GiB, 512MiB or 1073741824", text));
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  const double magnitude = std::abs(static_cast<double>(bytes));
  if (magnitude < 1024) return fmt::format("{} B", bytes);
  double scaled = static_cast<double>(bytes) / 1024;
  const char* unit = "KiB";
  for (const char* next : {"MiB", "GiB", "TiB", "PiB"}) {
    if (std::abs(scaled) < 1023.95) break;
    scaled /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {}", scaled, unit);
}

int64_t parse_bytes(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || std::signbit(number)) bad_bytes(text);
  std::string name(rest, end);
  name.erase(0, name.find_first_not_of(' ') == std::string::npos ? name.size() : name.find_first_not_of(' '));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == name; });
  if (unit == kUnits.end()) bad_bytes(text);
  if (unit->bytes == 1) {  // plain bytes: whole and exact, doubles end at 2^53
    int64_t whole = 0;
    const auto [digits_end, integer_error] = std::from_chars(text.data(), rest, whole);
    if (integer_error != std::errc() || digits_end != rest) bad_bytes(text);
    return whole;
  }
  const double bytes = std::round(number * unit->bytes);
  if (bytes >= 9223372036854775808.0) bad_bytes(text);
  return static_cast<int64_t>(bytes);
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return "?";
  double scaled = count;
  const char* unit = "";
  for (const char* next : {"K", "M", "B", "T"}) {
    if (std::abs(scaled) < 999.5) break;
    scaled /= 1000;
    unit = next;
  }
  const double magnitude = std::abs(scaled);
  const int decimals = magnitude >= 99.95 || scaled == std::round(scaled) ? 0 : magnitude >= 9.995 ? 1 : 2;
  std::string digits = fmt::format("{:.{}f}", scaled, decimals);
  if (decimals > 0) {  // 1.50 -> 1.5
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
  }
  return digits + unit;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto total = static_cast<int64_t>(std::llround(std::min(seconds, 1e15)));
  const int64_t days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60;
  if (days > 0) return fmt::format("{}d{:02}h", days, hours);
  if (hours > 0) return fmt::format("{}h{:02}m", hours, minutes);
  if (minutes > 0) return fmt::format("{}m{:02}s", minutes, total % 60);
  return fmt::format("{}s", total);
}

std::string format_rate(double per_second) { return format_count(per_second) + "/s"; }

}  // namespace narrowgauge
