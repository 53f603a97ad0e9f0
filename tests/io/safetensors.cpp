#include "lib/io/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <random>

#include "lib/base/checksum.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/base/child.h"
#include "tests/base/temporary_folder.h"
#include "tests/io/files.h"
#include "tests/support/catch.h"

using narrowgauge::UserError;
using narrowgauge::io::SafetensorsFile;
using narrowgauge::io::write_safetensors;
using narrowgauge::test::lacks;
using narrowgauge::test::read_bytes;
using narrowgauge::test::refusal;
using narrowgauge::test::TemporaryFolder;
using narrowgauge::test::write_bytes;

namespace {

std::string little_endian(uint64_t value) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((value >> (8 * i)) & 0xff);
  return bytes;
}

std::string file_of(const std::string& header, size_t data_bytes) {
  return little_endian(header.size()) + header + std::string(data_bytes, '\1');
}

// The message that a file with this header and as many bytes of data is refused with.
std::string header_refusal(const std::string& header, size_t data_bytes) {
  const TemporaryFolder scratch;
  write_bytes(scratch / "x.safetensors", file_of(header, data_bytes));
  const std::string message = refusal([&] { SafetensorsFile file(scratch / "x.safetensors"); });
  if (message != "accepted") CHECK(lacks(message, {"x.safetensors"}) == "");
  return message;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& range) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" +
         range + "]}";
}

}  // namespace

TEST_CASE("Every dtype and shape comes back as it was written") {
  const TemporaryFolder scratch;
  std::vector<narrowgauge::io::NamedTensor> tensors;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kInt,
                                     at::kShort, at::kChar, at::kByte, at::kBool}) {
    tensors.emplace_back(std::string("a.") + c10::toString(dtype), at::arange(15).view({3, 5}).to(dtype));
  }
  tensors.emplace_back("scalar", at::full({}, 2.5));
  tensors.emplace_back("empty", at::zeros({3, 0}));
  tensors.emplace_back("a name with \"quotes\" and \n", at::ones({1}));
  const auto written = write_safetensors(scratch / "x", tensors, {{"format", "pt"}});
  const std::string bytes = read_bytes(scratch / "x");
  CHECK(written.bytes == static_cast<int64_t>(bytes.size()));
  CHECK(written.checksum == narrowgauge::checksum(bytes));
  CHECK(bytes.find(R"("__metadata__":{"format":"pt"})") != std::string::npos);

  const SafetensorsFile file(scratch / "x");
  CHECK(file.tensors().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    REQUIRE(file.contains(name));
    const at::Tensor back = file.read(name);
    CHECK(back.scalar_type() == tensor.scalar_type());
    CHECK(back.sizes() == tensor.sizes());
    CHECK(at::equal(back, tensor));
  }
}

TEST_CASE("Tensors larger than the staging buffer are converted in slices") {
  const TemporaryFolder scratch;
  const at::Tensor values = at::randn({17 << 20}).mul_(3);  // 68 MiB
  write_safetensors(scratch / "same", {{"x", values}});
  write_safetensors(scratch / "low", {{"x", values}}, {}, at::kBFloat16);
  CHECK(at::equal(SafetensorsFile(scratch / "same").read("x"), values));
  const at::Tensor low = values.to(at::kBFloat16);
  CHECK(at::equal(SafetensorsFile(scratch / "low").read("x"), low));
  at::Tensor back = at::zeros(values.sizes(), at::kBFloat16);
  SafetensorsFile(scratch / "same").read_into("x", back);
  CHECK(at::equal(back, low));
}

TEST_CASE("Reading refuses an absent tensor and another shape") {
  const TemporaryFolder scratch;
  write_safetensors(scratch / "x", {{"w", at::ones({2, 3})}});
  const SafetensorsFile file(scratch / "x");
  CHECK(lacks(refusal([&] { static_cast<void>(file.read("v")); }), {"has no tensor \"v\""}) == "");
  CHECK(lacks(refusal([&] {
                static_cast<void>(file.read_into("w", at::empty({3, 2})));
              }),
              {"has shape (2, 3), expected is (3, 2)"}) == "");
  CHECK_THROWS_AS(SafetensorsFile(scratch / "absent"), UserError);
  CHECK_THROWS_AS(SafetensorsFile(scratch.path()), UserError);
}

TEST_CASE("Malformed headers are refused, each with its fault") {
  const std::string good = "{" + entry("a", "F32", "2", "0,8") + "," + entry("b", "U8", "3", "8,11") + "}";
  CHECK(header_refusal(good, 11) == "accepted");
  CHECK(header_refusal(good + "   ", 11) == "accepted");
  CHECK(header_refusal("{}", 0) == "accepted");
  CHECK(header_refusal("{" + entry("a", "F32", "0, 7", "0,0") + "}", 0) == "accepted");

  CHECK(lacks(header_refusal(good, 10), {"tensor \"b\"", "8-11", "10 bytes of data"}) == "");
  CHECK(lacks(header_refusal(good, 12), {"end at byte 11 of 12"}) == "");
  CHECK(lacks(header_refusal("{\"a\":", 0), {"no valid JSON"}) == "");
  CHECK(lacks(header_refusal("[1]", 0), {"no JSON object"}) == "");
  CHECK(lacks(header_refusal("{\"a\":1}", 0), {"tensor \"a\": its entry is no object"}) == "");
  CHECK(lacks(header_refusal("{" + entry("a", "F4", "2", "0,8") + "}", 8), {"dtype \"F4\" is not known"}) ==
        "");
  CHECK(lacks(header_refusal(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8), {"no dtype"}) == "");
  CHECK(lacks(header_refusal(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8), {"no list shape"}) == "");
  CHECK(lacks(header_refusal(R"({"a":{"dtype":"F32","shape":[2]}})", 8), {"no list data_offsets"}) == "");
  CHECK(lacks(header_refusal("{" + entry("a", "F32", "2", "0") + "}", 8), {"two numbers"}) == "");
  CHECK(lacks(header_refusal("{" + entry("a", "F32", "-2", "0,8") + "}", 8), {"whole numbers"}) == "");
  CHECK(lacks(header_refusal("{" + entry("a", "F32", "2.0", "0,8") + "}", 8), {"whole numbers"}) == "");
  CHECK(lacks(header_refusal("{" + entry("a", "F32", "3", "0,8") + "}", 8),
              {"need 12 bytes, its range has 8"}) == "");
  CHECK(lacks(header_refusal("{" + entry("a", "F32", "2", "8,0") + "}", 8), {"does not lie"}) == "");
  const std::string twice = "{" + entry("a", "F32", "2", "0,8") + "," + entry("a", "F32", "2", "8,16") + "}";
  CHECK(lacks(header_refusal(twice, 16), {"names \"a\" twice"}) == "");
  const std::string overlap =
      "{" + entry("a", "F32", "2", "0,8") + "," + entry("b", "F32", "2", "4,12") + "}";
  CHECK(lacks(header_refusal(overlap, 12), {"tensor \"b\"", "inside another tensor"}) == "");
  const std::string hole = "{" + entry("a", "F32", "2", "0,8") + "," + entry("b", "F32", "2", "12,20") + "}";
  CHECK(lacks(header_refusal(hole, 20), {"tensor \"b\"", "beyond"}) == "");
  CHECK(lacks(header_refusal("{" + entry("a", "F32", "9223372036854775807,2", "0,8") + "}", 8),
              {"too large"}) == "");
  CHECK(lacks(header_refusal("{" + entry("a", "F32", "4294967296,4294967296,0", "0,0") + "}", 0),
              {"too large"}) == "");
  CHECK(lacks(header_refusal("{" + entry("a", "F32", "18446744073709551615", "0,8") + "}", 8),
              {"whole numbers"}) == "");
  CHECK(lacks(header_refusal("{" + entry("a", "F32", "2", "0,18446744073709551624") + "}", 8),
              {"whole numbers"}) == "");
  CHECK(lacks(header_refusal(R"({"__metadata__":{"a":1}})", 0), {"__metadata__"}) == "");
  CHECK(lacks(header_refusal("{\"a\":" + std::string(100000, '['), 0), {"nested"}) == "");
  CHECK(lacks(header_refusal(R"({"a\nb":1})", 0), {R"("a\nb")"}) == "");
}

TEST_CASE("Truncated files and false header lengths are refused") {
  const TemporaryFolder scratch;
  const auto path = scratch / "x";
  write_safetensors(path, {{"w", at::ones({4, 4})}});
  const std::string whole = read_bytes(path);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_bytes(path, whole.substr(0, bytes));
    CHECK_THROWS_AS(SafetensorsFile(path), UserError);
  }
  for (const uint64_t length : {uint64_t{100'000'001}, UINT64_MAX, uint64_t{1} << 63, uint64_t{50'000'000}}) {
    write_bytes(path, little_endian(length) + whole.substr(8));
    CHECK(lacks(refusal([&] { static_cast<void>(SafetensorsFile(path)); }), {"its header claims"}) == "");
  }
}

// Whatever a header says, the file is refused or can be read.
TEST_CASE("Mutated files are refused or readable") {
  const TemporaryFolder scratch;
  const auto path = scratch / "x";
  write_safetensors(
      path, {{"first", at::ones({3, 5})}, {"second", at::ones({7}, at::kShort)}, {"third", at::ones({})}},
      {{"format", "pt"}});
  const std::string whole = read_bytes(path);
  const size_t header_end = whole.find('}', whole.find("third")) + 2;
  std::mt19937 random(7);
  const std::string alphabet = "0123456789\"{}[]:,-.eE \\FUIB\n\xff";
  const auto draw = [&](size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random); };
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = whole;
    const size_t edits = 1 + draw(4);
    for (size_t i = 0; i < edits; ++i) {
      const size_t at = draw(8) == 0 ? draw(8) : 8 + draw(header_end - 8);
      const char letter = draw(4) == 0 ? static_cast<char>(draw(256)) : alphabet[draw(alphabet.size())];
      switch (draw(3)) {
        case 0:
          bytes[at] = letter;
          break;
        case 1:
          bytes.insert(at, 1, letter);
          break;
        default:
          bytes.erase(at, 1 + draw(6));
      }
    }
    write_bytes(path, bytes);
    try {
      const SafetensorsFile file(path);
      for (const auto& tensor : file.tensors()) CHECK(file.read(tensor.first).defined());
      ++accepted;
    } catch (const UserError& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
  }
  CHECK(accepted < 2000);
}

TEST_CASE("A full disk leaves no partial file") {
  const TemporaryFolder scratch;
  const auto path = scratch / "x";
  const at::Tensor values = at::full({100'000}, 1.0f);
  const auto child = narrowgauge::test::in_child([&] {
    narrowgauge::ignore_file_signals();
    narrowgauge::test::limit_file_size(100'000);
    const std::string message = refusal([&] { write_safetensors(path, {{"w", values}}); });
    return lacks(message, {path.string()}).empty() ? 0 : 1;
  });
  CHECK(child.exit_code == 0);
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("Writing into a missing folder is the user's error") {
  const TemporaryFolder scratch;
  CHECK_THROWS_AS(write_safetensors(scratch / "absent" / "x", {{"w", at::ones({1})}}), UserError);
}
