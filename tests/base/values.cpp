// Checksums, units and text.
#include <cmath>
#include <limits>
#include <string>

#include "lib/base/checksum.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/base/version.h"
#include "tests/support/catch.h"

using namespace narrowgauge;

TEST_CASE("checksums do not depend on how bytes are cut") {
  std::string bytes;
  for (int i = 0; i < 100000; ++i) bytes += static_cast<char>(i * 31 % 251);
  Checksum streaming;
  for (size_t at = 0, piece = 1; at < bytes.size(); at += piece, piece = piece * 3 % 1009 + 1) {
    streaming.update(std::string_view(bytes).substr(at, piece));
  }
  CHECK(streaming.value() == checksum(bytes));
  CHECK(checksum("") == 0x2d06800538d394c2ULL);  // the published value of XXH3-64 for no bytes
  CHECK(Checksum().value() == checksum(""));
  CHECK(checksum("a") != checksum("b"));
  CHECK(checksum_hex(0x2aULL) == "000000000000002a");
  Checksum moved = std::move(streaming);
  moved.update("x");
  CHECK(moved.value() == checksum(bytes + "x"));
}

TEST_CASE("bytes are printed with one decimal") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(1048575) == "1.0 MiB");
  CHECK(format_bytes(14173392076) == "13.2 GiB");
  CHECK(format_bytes(-2048) == "-2.0 KiB");
  CHECK(format_bytes(std::numeric_limits<int64_t>::max()) == "8192.0 PiB");
}

TEST_CASE("bytes are read with and without a unit") {
  CHECK(parse_bytes("4096") == 4096);
  CHECK(parse_bytes("0") == 0);
  CHECK(parse_bytes("9223372036854775807") == std::numeric_limits<int64_t>::max());
  CHECK(parse_bytes("9007199254740993") == 9007199254740993);  // beyond a double's integers
  CHECK(parse_bytes("512MiB") == 536870912);
  CHECK(parse_bytes("14.5GiB") == 15569256448);
  CHECK(parse_bytes("14.5 gib") == 15569256448);
  CHECK(parse_bytes("16GB") == 16000000000);
  CHECK(parse_bytes("1k") == 1024);
  CHECK(parse_bytes("3B") == 3);
  for (const char* bad : {"", " ", "GiB", "-1", "-0", "1.5", "1.5B", "1e3", "nan", "inf", "12 parsecs",
                          "1GiBx", "9223372036854775808", "9000000TiB", "+1", "1,5GiB"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_bytes(bad), UserError);
  }
}

TEST_CASE("counts and rates have three digits") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1500) == "1.5K");
  CHECK(format_count(52428) == "52.4K");
  CHECK(format_count(976770816) == "977M");
  CHECK(format_count(999.6) == "1K");
  CHECK(format_count(999600) == "1M");
  CHECK(format_count(1.07e9) == "1.07B");
  CHECK(format_count(2.5e12) == "2.5T");
  CHECK(format_count(0.25) == "0.25");
  CHECK(format_count(std::nan("")) == "?");
  CHECK(format_rate(76300) == "76.3K/s");
}

TEST_CASE("durations") {
  CHECK(format_duration(0.42) == "0.4s");
  CHECK(format_duration(9.97) == "10s");
  CHECK(format_duration(59.6) == "1m00s");
  CHECK(format_duration(185) == "3m05s");
  CHECK(format_duration(3720) == "1h02m");
  CHECK(format_duration(2 * 86400 + 3 * 3600) == "2d03h");
  CHECK(format_duration(-1) == "?");
  CHECK(format_duration(std::numeric_limits<double>::infinity()) == "?");
}

TEST_CASE("edit distance and suggestions") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ab", "ba") == 1);
  CHECK(edit_distance("same", "same") == 0);
  const std::vector<std::string> names{"steps", "seed", "save_every"};
  CHECK(nearest_name("step", names) == "steps");
  CHECK(nearest_name("sede", names) == "seed");
  CHECK(nearest_name("saveevery", names) == "save_every");
  CHECK(nearest_name("banana", names).empty());
  CHECK(nearest_name("x", {}).empty());
  CHECK(did_you_mean("step", names) == " (did you mean \"steps\"?)");
  CHECK(did_you_mean("banana", names).empty());
  CHECK(join({"a", "", "c"}) == "a, , c");
  CHECK(join({}).empty());
}

TEST_CASE("the version is the build's") {
  const std::string build = read_file(NARROWGAUGE_SOURCE_DIR "/CMakeLists.txt");
  CHECK(build.find(std::string("VERSION ") + kVersion + " ") != std::string::npos);
}
