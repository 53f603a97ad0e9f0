// Shards of every format and data sets made of them.
#include <map>
#include <numeric>

#include "lib/base/file.h"
#include "lib/data/shard_format.h"
#include "lib/data/verify.h"
#include "tests/base/child.h"
#include "tests/base/temporary_folder.h"
#include "tests/data/support.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using namespace narrowgauge::data;
using namespace narrowgauge::test;

namespace {

std::vector<int32_t> counting(int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

std::string llmc_header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header);
}

std::string npy(const std::string& type, const std::string& shape, int version = 1,
                const std::string& order = "False") {
  std::string dictionary =
      "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  const size_t prefix = version == 1 ? 10 : 12;
  dictionary.resize((prefix + dictionary.size() + 64) / 64 * 64 - prefix - 1, ' ');
  dictionary += '\n';
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  const auto length = static_cast<uint32_t>(dictionary.size());
  out += version == 1 ? bytes_of(std::vector<uint16_t>{static_cast<uint16_t>(length)})
                      : bytes_of(std::vector<uint32_t>{length});
  return out + dictionary;
}

std::string open_error(const std::filesystem::path& path) {
  return user_error([&] { (void)Dataset::open(path.string()); });
}

}  // namespace

TEST_CASE("every format gives the same tokens through mmap and through reads") {
  const TemporaryFolder folder;
  const std::vector<int32_t> tokens = {0, 1, 2, 999, 65535, 4660};
  const std::vector<uint16_t> u16(tokens.begin(), tokens.end());
  const std::vector<uint32_t> u32(tokens.begin(), tokens.end());
  const std::vector<int64_t> i64(tokens.begin(), tokens.end());
  write_shards(folder / "own2", tokens, {65536, 11, 2});
  write_shards(folder / "own4", tokens, {65537, 11, 2});
  write_file(folder / "raw.bin", bytes_of(u16));
  write_file(folder / "llmc1.bin", llmc_header(20240520, 1, 6) + bytes_of(u16));
  write_file(folder / "llmc7.bin", llmc_header(20240801, 7, 6) + bytes_of(u32));
  write_file(folder / "u2.npy", npy("<u2", "(6,)") + bytes_of(u16));
  write_file(folder / "u4.npy", npy("<u4", "(6,)") + bytes_of(u32));
  write_file(folder / "i4.npy", npy("<i4", "(6,)", 2) + bytes_of(tokens));
  write_file(folder / "i8.npy", npy("<i8", "(6,)") + bytes_of(i64));

  const std::map<std::string, std::pair<ShardFormat, int>> files = {
      {"own2/shard-000000.ngt", {ShardFormat::narrowgauge, 2}},
      {"own4/shard-000000.ngt", {ShardFormat::narrowgauge, 4}},
      {"raw.bin", {ShardFormat::raw_uint16, 2}},
      {"llmc1.bin", {ShardFormat::llmc, 2}},
      {"llmc7.bin", {ShardFormat::llmc, 4}},
      {"u2.npy", {ShardFormat::npy, 2}},
      {"u4.npy", {ShardFormat::npy, 4}},
      {"i4.npy", {ShardFormat::npy, 4}},
      {"i8.npy", {ShardFormat::npy, 8}}};
  for (const auto& [name, expected] : files) {
    for (const auto access : {FileAccess::map, FileAccess::read, FileAccess::automatic}) {
      INFO(name);
      const auto shard = Shard::open(folder / name, access);
      CHECK(shard->info().format == expected.first);
      CHECK(shard->info().token_bytes == expected.second);
      REQUIRE(shard->info().count == 6);
      std::vector<int32_t> got(6);
      shard->read(0, 6, got.data());
      CHECK(got == tokens);
      shard->read(3, 2, got.data());
      CHECK(got[0] == 999);
      CHECK(got[1] == 65535);
      CHECK(shard->id(5) == 4660);
      CHECK_THROWS_AS(shard->read(5, 2, got.data()), std::out_of_range);
      CHECK_THROWS_AS(shard->read(-1, 2, got.data()), std::out_of_range);
    }
  }
}

TEST_CASE("our own header, byte by byte") {
  const TemporaryFolder folder;
  write_shards(folder / "s", std::vector<int32_t>{3, 258}, {259, 0x1122334455667788, 2});
  const std::string bytes = file_text(folder / "s/shard-000000.ngt");
  REQUIRE(bytes.size() == 64 + 4);
  CHECK(bytes.substr(0, 8) == "NGTOKENS");
  CHECK(bytes.substr(8, 8) == std::string("\1\0\0\0\2\0\0\0", 8));
  CHECK(bytes.substr(16, 16) == bytes_of(std::vector<int64_t>{2, 259}));
  CHECK(bytes.substr(32, 8) == "\x88\x77\x66\x55\x44\x33\x22\x11");
  CHECK(bytes.substr(40, 8) == bytes_of(std::vector<int64_t>{2}));
  CHECK(bytes.substr(64) == std::string("\3\0\2\1", 4));
  const auto info = Shard::open(folder / "s/shard-000000.ngt")->info();
  CHECK(info.vocab_size == 259);
  CHECK(info.end_of_document == 2);
  CHECK(info.tokenizer_hash == 0x1122334455667788);
}

TEST_CASE("an unfinished shard is no shard, and a full disk is the user's error") {
  const TemporaryFolder folder;
  {
    ShardWriter writer(folder.path(), {1000, 1, 2}, 1 << 20);
    writer.append(counting(100));
  }
  CHECK(says(open_error(folder.path()), {"shard-000000.ngt", "NGTOKENS"}));
  const auto child = in_child([&] {
    ignore_file_signals();
    limit_file_size(1 << 20);
    const std::vector<int32_t> tokens(2 << 20, 5);
    const auto error = user_error([&] { write_shards(folder / "full", tokens); });
    std::puts(error.c_str());
    return error.empty() ? 1 : 0;
  });
  INFO(child.output);
  CHECK(child.exit_code == 0);
  CHECK(child.output.find("full/shard-000000.ngt") != std::string::npos);
}

TEST_CASE("bad shards are refused with one line") {
  const TemporaryFolder folder;
  const std::string six = bytes_of(std::vector<uint16_t>{1, 2, 3, 4, 5, 6});
  const auto refused = [&](const std::string& name, const std::string& bytes,
                           std::vector<std::string> parts) {
    write_file(folder / name, bytes);
    parts.push_back(name);
    const auto error = open_error(folder / name);
    INFO(name << ": " << error);
    CHECK(says(error, parts));
  };
  CHECK(says(open_error(folder / "gone.bin"), {"gone.bin", "no such", "narrowgauge prepare"}));
  CHECK(says(open_error(folder / "gone*.bin"), {"gone*.bin", "pattern"}));
  CHECK(says(open_error(folder.path()), {"no token files", "narrowgauge prepare"}));
  CHECK(says(open_error(""), {"data.train"}));
  refused("empty.bin", "", {"empty"});
  refused("odd.bin", "abc", {"truncated", "3 bytes"});
  refused("text.txt", "some text", {"not a token file", "narrowgauge prepare"});
  refused("l0.bin", llmc_header(20240520, 1, 0), {"0 tokens"});
  refused("l1.bin", llmc_header(20240520, 1, 7) + six, {"truncated", "7 tokens", "12 bytes"});
  refused("l2.bin", llmc_header(20240520, 1, 5) + six, {"malformed", "5 tokens"});
  refused("l3.bin", llmc_header(20240520, 2, 6) + six, {"version 2", "version 1"});
  refused("l4.bin", llmc_header(20240801, 1, 3) + six, {"version 1", "version 7"});
  refused("l5.bin", llmc_header(20240520, 1, 6).substr(0, 500), {"truncated", "500 bytes"});
  refused("l6.bin", llmc_header(20240520, 1, -1) + six, {"-1"});
  refused("eval.bin", llmc_header(20240522, 1, 6) + six, {"20240522"});
  refused("n1.npy", npy("<f4", "(3,)") + six, {"'<f4'", "uint16"});
  refused("n2.npy", npy(">u2", "(6,)") + six, {"'>u2'"});
  refused("n3.npy", npy("<u2", "(2, 3)") + six, {"shape (2, 3)"});
  refused("n4.npy", npy("<u2", "(6,)", 1, "True") + six, {"Fortran"});
  refused("n5.npy", npy("<u2", "(7,)") + six, {"truncated", "7 tokens"});
  refused("n6.npy", npy("<u2", "(6,)", 3) + six, {"format 3"});
  refused("n7.npy", std::string("\x93NUMPY\1\0\xff\xff", 10), {"header"});
  refused("n8.npy", npy("<u2", "(0,)"), {"0 tokens"});
  refused("n9.npy", npy("<u2", "()") + six, {"shape ()"});

  write_shards(folder / "own", counting(100));
  const std::string good = file_text(folder / "own/shard-000000.ngt");
  refused("a.ngt", good.substr(0, 30), {"truncated", "30 bytes"});
  refused("b.ngt", good.substr(0, good.size() - 1), {"truncated", "100 tokens", "199 bytes"});
  refused("c.ngt", good + "xx", {"malformed", "202 bytes"});
  refused("d.ngt", "NGTOKENX" + good.substr(8), {"NGTOKENS"});
  std::string changed = good;
  changed[8] = 9;
  refused("e.ngt", changed, {"version 9", "version 1", "again"});
  changed = good;
  changed[16] = 101;
  refused("f.ngt", changed, {"corrupted", "checksum"});

  changed = good;
  changed[100] ^= 1;
  write_file(folder / "g.ngt", changed);
  CHECK(
      says(user_error([&] { Shard::open(folder / "g.ngt")->verify(); }), {"g.ngt", "corrupted", "checksum"}));
  CHECK(Shard::open(folder / "own/shard-000000.ngt")->verify());
}

TEST_CASE("ids beyond the vocabulary are named with file and position") {
  const TemporaryFolder folder;
  std::vector<int32_t> out(4);
  write_file(folder / "raw.bin", bytes_of(std::vector<uint16_t>{1, 2, 31999, 32000}));
  auto dataset = Dataset::open((folder / "raw.bin").string());
  dataset->read(0, 4, out.data());
  dataset->set_vocab_limit(32000);
  dataset->read(0, 3, out.data());
  const auto error = user_error([&] { dataset->read(1, 3, out.data()); });
  CHECK(says(error, {"raw.bin", "token 3", "32000", "[0, 32000)", "model.vocab_size to at least 32001"}));

  write_file(folder / "neg.npy", npy("<i4", "(3,)") + bytes_of(std::vector<int32_t>{1, -7, 2}));
  dataset = Dataset::open((folder / "neg.npy").string());
  CHECK(says(user_error([&] { dataset->read(0, 3, out.data()); }), {"neg.npy", "token 1", "id -7"}));
  write_file(folder / "big.npy", npy("<i8", "(2,)") + bytes_of(std::vector<int64_t>{1, int64_t{1} << 40}));
  dataset = Dataset::open((folder / "big.npy").string());
  CHECK(says(user_error([&] { dataset->read(0, 2, out.data()); }), {"token 1", "id 1099511627776"}));
  write_file(folder / "u4.npy", npy("<u4", "(1,)") + bytes_of(std::vector<uint32_t>{0xFFFFFFFE}));
  dataset = Dataset::open((folder / "u4.npy").string());
  CHECK(says(user_error([&] { dataset->read(0, 1, out.data()); }), {"token 0", "id 4294967294"}));

  write_shards(folder / "own", counting(10), {50257, 1, 2});
  dataset = Dataset::open((folder / "own").string());
  dataset->set_vocab_limit(50304);
  CHECK(says(user_error([&] { dataset->set_vocab_limit(32000); }), {"50257", "32000", "model.vocab_size"}));
}

TEST_CASE("a data set is its shards one after another, in the order of their names") {
  const TemporaryFolder folder;
  const auto tokens = counting(1000);
  write_shards(folder / "d", tokens, {1000, 7, 2}, 64);
  write_file(folder / "d/tokenizer.byte", "x");
  write_file(folder / "d/notes.txt", "x");
  std::filesystem::create_directory(folder / "d/deeper.bin");
  const auto dataset = Dataset::open((folder / "d").string());
  CHECK(dataset->shards().size() == 16);
  REQUIRE(dataset->token_count() == 1000);
  CHECK(dataset->vocab_size() == 1000);
  CHECK(dataset->tokenizer_hash() == 7U);
  CHECK(dataset->end_of_document() == 2);
  CHECK(dataset->folder() == folder / "d");
  for (int64_t offset : {0, 1, 63, 64, 65, 500, 999}) {
    for (int64_t count : {0, 1, 2, 64, 129, 500}) {
      if (offset + count > 1000) continue;
      std::vector<int32_t> got(static_cast<size_t>(count));
      dataset->read(offset, count, got.data());
      CHECK(std::equal(got.begin(), got.end(), tokens.begin() + offset));
    }
  }
  CHECK_THROWS_AS(dataset->read(990, 11, nullptr), std::out_of_range);
  CHECK(all_tokens((folder / "d/*").string()) == tokens);
  CHECK(all_tokens((folder / "d/shard-00000[1-2].ngt").string()) ==
        std::vector<int32_t>(tokens.begin() + 64, tokens.begin() + 192));

  // The fingerprint follows the content and the names, not the place.
  std::filesystem::copy(folder / "d", folder / "copy");
  CHECK(Dataset::open((folder / "copy").string())->fingerprint() == dataset->fingerprint());
  std::filesystem::remove(folder / "copy/shard-000015.ngt");
  CHECK(Dataset::open((folder / "copy").string())->fingerprint() != dataset->fingerprint());
  auto other = tokens;
  other[10] = 3;
  write_shards(folder / "other", other, {1000, 7, 2}, 64);
  CHECK(Dataset::open((folder / "other").string())->fingerprint() != dataset->fingerprint());
}

TEST_CASE(
    "a change anywhere in a small foreign file, or in a sample of a large one, changes the fingerprint") {
  const TemporaryFolder folder;
  const auto print = [&](const std::string& bytes) {
    write_file(folder / "raw.bin", bytes);
    return Dataset::open((folder / "raw.bin").string())->fingerprint();
  };
  constexpr size_t kBlock = 64 * 1024;
  for (const size_t size :
       {size_t{2}, size_t{1000}, kBlock + 2, 64 * kBlock, 64 * kBlock + 2, 500 * kBlock + 6}) {
    INFO(size);
    std::string bytes(size, '\3');
    const auto before = print(bytes);
    CHECK(print(bytes) == before);
    const size_t gap = size > 64 * kBlock ? (size - kBlock) / 63 : 1;  // of sample starts
    for (const size_t at : {size_t{0}, size - 1, size <= 64 * kBlock ? size / 2 : 31 * gap + 100}) {
      INFO(at);
      bytes[at] ^= 1;
      CHECK(print(bytes) != before);
      bytes[at] ^= 1;
    }
    CHECK(print(bytes + std::string(2, '\3')) != before);
  }
}

TEST_CASE("contents are verified from the first shard on, as far as asked") {
  const TemporaryFolder folder;
  write_shards(folder / "d", counting(100), {1000, 7, 2}, 40);  // 80, 80 and 40 bytes
  const auto open = [&] { return Dataset::open((folder / "d").string()); };
  CHECK(verify_contents(*open()).shards == 3);
  CHECK(verify_contents(*open()).bytes == 200);
  CHECK(verify_contents(*open(), 159).shards == 1);
  CHECK(verify_contents(*open(), 160).bytes == 160);
  CHECK(verify_contents(*open(), 0).shards == 0);
  std::string damaged = file_text(folder / "d/shard-000001.ngt");
  damaged[70] ^= 1;
  write_file(folder / "d/shard-000001.ngt", damaged);
  const auto start = [&](const std::string& name, int64_t vocab) {
    return user_error([&] { verify_before_training("data.train", (folder / name).string(), vocab); });
  };
  CHECK(says(start("d", 1000), {"shard-000001.ngt", "corrupted", "checksum"}));
  CHECK(says(start("d", 999), {"1000", "999", "model.vocab_size"}));
  CHECK(verify_contents(*open(), 80).shards == 1);

  write_file(folder / "raw.bin", bytes_of(std::vector<uint16_t>{1, 2, 31999, 32000}));
  CHECK(says(start("raw.bin", 32000), {"raw.bin", "token 3", "32000"}));
  CHECK(start("raw.bin", 32001).empty());
}

TEST_CASE("shards of different tokenizers are refused in one set") {
  const TemporaryFolder folder;
  const auto mix = [&](const std::string& name, ShardSetInfo second) {
    write_shards(folder / name, counting(10), {1000, 7, 2});
    write_shards(folder / (name + "2"), counting(10), second);
    std::filesystem::rename(folder / (name + "2/shard-000000.ngt"), folder / (name + "/shard-000001.ngt"));
    return open_error(folder / name);
  };
  CHECK(says(mix("v", {1001, 7, 2}),
             {"shard-000000.ngt", "shard-000001.ngt", "vocabulary size (1000 and 1001)"}));
  CHECK(says(mix("t", {1000, 8, 2}), {"tokenizer"}));
  CHECK(says(mix("e", {1000, 7, 3}), {"end-of-document token (2 and 3)"}));
  CHECK(mix("same", {1000, 7, 2}).empty());
  write_file(folder / "same/x.bin", bytes_of(std::vector<uint16_t>{1, 2}));
  CHECK(says(open_error(folder / "same"), {"vocabulary size (1000 and 0)"}));
}
