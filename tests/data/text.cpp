// Tokenizers and prepare: text to shards and back.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <random>
#include <thread>

#include "lib/base/file.h"
#include "lib/data/byte_tokenizer.h"
#include "lib/data/prepare.h"
#include "lib/data/text_reader.h"
#include "lib/data/utf8.h"
#include "tests/base/child.h"
#include "tests/base/temporary_folder.h"
#include "tests/data/support.h"
#include "tests/support/catch.h"

using namespace narrowgauge;
using namespace narrowgauge::data;
using namespace narrowgauge::test;

namespace {

const std::string kOddText =
    "  Two  blanks, a\ttab,\r\n\n\n   three line ends; caf\xC3\xA9 \xE2\x82\xAC 12345 "
    "\xF0\x9F\x98\x80\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD end ";

// Text without a file: random words of a few hundred, with punctuation and line breaks.
std::string made_up_text(size_t bytes) {
  const std::vector<std::string> syllables = {"nar", "row", "gau",  "ge",  "train",
                                              "ri",  "ver", "hill", "sta", "tion"};
  std::mt19937 random(1);
  std::vector<std::string> words(400);
  for (auto& word : words) {
    for (auto count = 1 + random() % 4; count > 0; --count) word += syllables[random() % syllables.size()];
    word += static_cast<char>('a' + random() % 26);
  }
  std::string text;
  while (text.size() < bytes) {
    for (int i = 0; i < 8; ++i) text += words[random() % words.size()] + (random() % 9 == 0 ? ", " : " ");
    text += random() % 4 == 0 ? ".\n\n" : ".\n";
  }
  return text;
}

// A model trained once for all tests, on the real text when it is there.
const std::string& model_path() {
  static const TemporaryFolder folder;
  static const std::string path = [] {
    std::string text = real_text_path();
    if (text.empty()) {
      WARN("tinyshakespeare.txt is absent (NARROWGAUGE_DATA): made-up text is used instead");
      text = folder / "text.txt";
      write_file(text, made_up_text(300000));
    }
    train_sentencepiece(text, 1000, folder / "tok.model");
    return (folder / "tok.model").string();
  }();
  return path;
}

std::string sample_text() {
  const std::string path = real_text_path();
  return path.empty() ? made_up_text(200000) : file_text(path).substr(0, 200000);
}

PrepareOptions prepare_options(const std::filesystem::path& input, const std::filesystem::path& out) {
  PrepareOptions options;
  options.inputs = {input.string()};
  options.out = out;
  return options;
}

std::vector<int32_t> with_end(std::vector<int32_t> ids, const Tokenizer& tokenizer) {
  ids.push_back(tokenizer.end_of_document());
  return ids;
}

size_t entries(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("the byte tokenizer gives every byte back") {
  const auto tokenizer = make_tokenizer("byte");
  CHECK(tokenizer->vocab_size() == 259);
  CHECK(tokenizer->end_of_document() == 2);
  CHECK(tokenizer->encode(std::string("\0A\xFF", 3)) == std::vector<int32_t>{3, 68, 258});
  std::string every(256, '\0');
  std::iota(every.begin(), every.end(), '\0');
  CHECK(tokenizer->decode(tokenizer->encode(every)) == every);
  CHECK(tokenizer->decode({0, 68, 1, 2, 69, 259, -1}) == "AB\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(tokenizer->encode("").empty());
}

TEST_CASE("a trained SentencePiece model gives text back exactly") {
  const auto tokenizer = make_tokenizer(model_path());
  CHECK(tokenizer->vocab_size() == 1000);
  CHECK(tokenizer->end_of_document() == 2);
  for (const std::string& text :
       {kOddText, std::string("\n"), std::string(" "), std::string("x\0y\0", 4), std::string("\n \n  \n"),
        std::string("  \t"), sample_text(), std::string()}) {
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  }
  CHECK(tokenizer->decode(tokenizer->encode("bad\xFF"
                                            "byte")) ==
        "bad\xEF\xBF\xBD"
        "byte");
  CHECK(tokenizer->encode(sample_text()).size() < sample_text().size() / 2);
  // Special tokens give nothing, unknown ids a replacement character.
  auto ids = tokenizer->encode("hear");
  ids.insert(ids.begin(), {1, 2});
  CHECK(tokenizer->decode(ids) == "hear");
  CHECK(tokenizer->decode({1000, -5}) == "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_CASE("training writes whole files only, overwrites on demand and says what a small text yields") {
  const TemporaryFolder folder;
  write_file(folder / "small.txt", "To be, or not to be, that is the question.\n");
  const int64_t yielded = train_sentencepiece(folder / "small.txt", 32000, folder / "new/tok.model");
  CHECK(yielded > 259);
  CHECK(yielded < 1000);
  CHECK(make_tokenizer(folder / "new/tok.model")->vocab_size() == yielded);
  const auto again = [&](bool overwrite) {
    return user_error(
        [&] { train_sentencepiece(folder / "small.txt", 300, folder / "new/tok.model", overwrite); });
  };
  CHECK(says(again(false), {"tok.model", "exists", "--overwrite"}));
  CHECK(again(true).empty());
  CHECK(make_tokenizer(folder / "new/tok.model")->vocab_size() == 300);
  CHECK(entries(folder / "new") == 1);

  write_file(folder / "empty.txt", "");
  CHECK(says(user_error([&] { train_sentencepiece(folder / "empty.txt", 300, folder / "e.model"); }),
             {"empty.txt", "text"}));
  CHECK(says(user_error([&] { train_sentencepiece(folder / "gone.txt", 300, folder / "e.model"); }),
             {"gone.txt"}));
  CHECK(says(user_error([&] { train_sentencepiece(folder / "small.txt", 100, folder / "e.model"); }),
             {"small.txt", "100", "too small"}));
  CHECK(!std::filesystem::exists(folder / "e.model"));

  const auto child = in_child([&] {
    ignore_file_signals();
    limit_file_size(1000);
    const auto error =
        user_error([&] { train_sentencepiece(folder / "small.txt", 300, folder / "full/tok.model"); });
    std::puts(error.c_str());
    return error.empty() ? 1 : 0;
  });
  INFO(child.output);
  CHECK(child.exit_code == 0);
  CHECK(entries(folder / "full") == 0);
}

TEST_CASE("training is silent and repeats to the bit") {
  const TemporaryFolder folder;
  write_file(folder / "t.txt", made_up_text(50000));
  const auto child = in_child([&] {
    train_sentencepiece(folder / "t.txt", 400, folder / "a.model");
    train_sentencepiece(folder / "t.txt", 400, folder / "b.model");
    return 0;
  });
  CHECK(child.exit_code == 0);
  CHECK(child.output.empty());
  CHECK(file_text(folder / "a.model") == file_text(folder / "b.model"));
}

TEST_CASE("malformed and missing models are refused with one line") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& name) {
    return user_error([&] { (void)make_tokenizer(folder / name); });
  };
  CHECK(says(refused("gone.model"), {"gone.model"}));
  write_file(folder / "empty.model", "");
  CHECK(says(refused("empty.model"), {"empty.model", "SentencePiece", "byte"}));
  write_file(folder / "text.model", "this is no model at all, not even close to one");
  CHECK(says(refused("text.model"), {"text.model"}));
  const std::string good = file_text(model_path());
  write_file(folder / "cut.model", good.substr(0, good.size() / 2));
  CHECK(says(refused("cut.model"), {"cut.model"}));
  CHECK(says(refused(""), {folder.path().string()}));
}

TEST_CASE("a tokenizer travels through a folder") {
  const TemporaryFolder folder;
  CHECK(load_tokenizer(folder.path()) == nullptr);
  CHECK(load_tokenizer(folder / "gone") == nullptr);
  for (const auto& name : {std::string("byte"), model_path()}) {
    const auto tokenizer = make_tokenizer(name);
    std::filesystem::create_directory(folder / "t");
    tokenizer->save(folder / "t");
    const auto loaded = load_tokenizer(folder / "t");
    REQUIRE(loaded != nullptr);
    CHECK(loaded->hash() == tokenizer->hash());
    CHECK(loaded->encode(kOddText) == tokenizer->encode(kOddText));
    std::filesystem::remove_all(folder / "t");
  }
  CHECK(make_tokenizer("byte")->hash() != make_tokenizer(model_path())->hash());
}

TEST_CASE("UTF-8: whole characters and replacement") {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  const std::vector<size_t> whole = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
  for (size_t i = 0; i <= text.size(); ++i)
    CHECK(whole_characters(std::string_view(text).substr(0, i)) == whole[i]);
  CHECK(whole_characters("\xA9\xA9\xA9\xA9") == 4);
  CHECK(replace_invalid_utf8(text) == text);
  CHECK(replace_invalid_utf8("a\xFF"
                             "b\xC3") ==
        "a\xEF\xBF\xBD"
        "b\xEF\xBF\xBD");
  CHECK(replace_invalid_utf8("\xED\xA0\x80").size() == 9);  // a surrogate
  CHECK(replace_invalid_utf8("\xC0\x80").size() == 6);      // overlong
  CHECK(replace_invalid_utf8("\xF4\x90\x80\x80").size() == 12);
}

TEST_CASE("streamed decoding never hands out half a character") {
  for (const auto& name : {std::string("byte"), model_path()}) {
    const auto tokenizer = make_tokenizer(name);
    StreamDecoder decoder(*tokenizer);
    std::string text;
    for (const int32_t id : tokenizer->encode(kOddText)) {
      const std::string part = decoder.push(id);
      CHECK(replace_invalid_utf8(part) == part);
      CHECK(whole_characters(part) == part.size());
      text += part;
    }
    CHECK(text + decoder.finish() == kOddText);
    StreamDecoder broken(*tokenizer);
    const auto euro = tokenizer->encode("\xE2\x82\xAC");
    CHECK(broken.push(euro[0]).empty());
    CHECK(broken.finish() == "\xEF\xBF\xBD");
  }
}

TEST_CASE("a text cut where the tokenizer allows gives the tokens of the whole text") {
  const std::string text = sample_text().substr(0, 30000) + kOddText + kOddText;
  for (const auto& name : {std::string("byte"), model_path()}) {
    const auto tokenizer = make_tokenizer(name);
    const auto whole = tokenizer->encode(text);
    for (size_t window : {50, 333, 4096}) {
      std::vector<int32_t> pieces;
      std::string_view rest = text;
      while (!rest.empty()) {
        const size_t at = rest.size() > window ? tokenizer->cut(rest.substr(0, window)) : rest.size();
        REQUIRE(at > 0);
        const auto ids = tokenizer->encode_continuation(rest.substr(0, at));
        pieces.insert(pieces.end(), ids.begin(), ids.end());
        rest.remove_prefix(at);
      }
      CHECK(pieces == whole);
    }
  }
}

TEST_CASE("prepare: documents, end-of-document tokens, shards, the tokenizer beside them") {
  const TemporaryFolder folder;
  const auto tokenizer = make_tokenizer("byte");
  write_file(folder / "a.txt", "first\n");
  write_file(folder / "b.txt", "second \xFF\xFE");
  write_file(folder / "none.txt", "");
  auto options = prepare_options(folder / "a.txt", folder / "parent/out/");
  options.inputs.push_back((folder / "none.txt").string());
  options.inputs.push_back((folder / "b.txt").string());
  options.shard_tokens = 5;
  const auto counts = prepare(options);
  CHECK(counts.bytes == 15);
  CHECK(counts.documents == 2);
  CHECK(counts.tokens == 17);
  CHECK(counts.shards == 4);
  CHECK(entries(folder / "parent") == 1);
  CHECK(entries(folder / "parent/out") == 5);
  std::vector<int32_t> expected = with_end(tokenizer->encode("first\n"), *tokenizer);
  for (int32_t id : with_end(tokenizer->encode("second \xFF\xFE"), *tokenizer)) expected.push_back(id);
  CHECK(all_tokens(folder / "parent/out") == expected);
  const auto dataset = Dataset::open(folder / "parent/out");
  CHECK(dataset->vocab_size() == 259);
  CHECK(dataset->end_of_document() == 2);
  CHECK(dataset->tokenizer_hash() == load_tokenizer(dataset->folder())->hash());
  CHECK(verify_shards(folder / "parent/out") == 17);

  std::string damaged = file_text(folder / "parent/out/shard-000001.ngt");
  damaged.back() ^= 1;
  write_file(folder / "parent/out/shard-000001.ngt", damaged);
  CHECK(says(user_error([&] { verify_shards(folder / "parent/out"); }), {"shard-000001.ngt", "corrupted"}));
}

TEST_CASE("prepare takes every file of a folder, in order, hidden ones left out") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "in/b/.git");
  write_file(folder / "in/c.txt", "C");
  write_file(folder / "in/b/x.txt", "X");
  write_file(folder / "in/a.txt", "A");
  write_file(folder / "in/.hidden", "H");
  write_file(folder / "in/b/.git/y", "Y");
  CHECK(prepare(prepare_options(folder / "in", folder / "out")).documents == 3);
  CHECK(all_tokens(folder / "out") == std::vector<int32_t>{68, 2, 91, 2, 70, 2});
}

TEST_CASE("prepare with SentencePiece equals encoding whole documents, however long") {
  const TemporaryFolder folder;
  const auto tokenizer = make_tokenizer(model_path());
  const std::string text = sample_text();  // several pieces
  write_file(folder / "t.txt", text);
  auto options = prepare_options(folder / "t.txt", folder / "out");
  options.tokenizer = model_path();
  prepare(options);
  CHECK(all_tokens(folder / "out") == with_end(tokenizer->encode(text), *tokenizer));
  CHECK(load_tokenizer(folder / "out")->hash() == tokenizer->hash());
  // A text without any place to cut still goes through, in constant memory.
  const std::string wall(3 << 20, ' ');
  write_file(folder / "wall.txt", wall);
  options = prepare_options(folder / "wall.txt", folder / "wall");
  options.tokenizer = model_path();
  prepare(options);
  auto ids = all_tokens(folder / "wall");
  ids.pop_back();
  CHECK(tokenizer->decode(ids) == wall);
}

TEST_CASE("prepare reads JSON lines") {
  const TemporaryFolder folder;
  const auto tokenizer = make_tokenizer("byte");
  write_file(folder / "d.jsonl",
             "{\"text\": \"one\\nline\", \"id\": 1}\r\n\n   \n{\"id\": 2, \"text\": \"\"}\n{\"text\": "
             "\"caf\\u00e9 \\ud83d\\ude00\"}");
  auto options = prepare_options(folder / "d.jsonl", folder / "out");
  options.jsonl = true;
  const auto counts = prepare(options);
  CHECK(counts.documents == 2);
  auto expected = with_end(tokenizer->encode("one\nline"), *tokenizer);
  for (int32_t id : with_end(tokenizer->encode("caf\xC3\xA9 \xF0\x9F\x98\x80"), *tokenizer))
    expected.push_back(id);
  CHECK(all_tokens(folder / "out") == expected);

  // A long document, and a field of another name.
  const std::string text = made_up_text(500000);
  std::string line = "{\"body\": \"";
  for (const char c : text) line += c == '\n' ? std::string("\\n") : std::string(1, c);
  write_file(folder / "long.jsonl", line + "\"}\n" + line + "\"}\n");
  options.inputs = {(folder / "long.jsonl").string()};
  options.out = folder / "long";
  options.field = "body";
  CHECK(prepare(options).documents == 2);
  expected = with_end(tokenizer->encode(text), *tokenizer);
  const auto twice = expected;
  expected.insert(expected.end(), twice.begin(), twice.end());
  CHECK(all_tokens(folder / "long") == expected);

  const auto refused = [&](const std::string& bad, std::vector<std::string> parts) {
    write_file(folder / "bad.jsonl", "{\"body\": \"fine\"}\n\n" + bad + "\n");
    options.inputs = {(folder / "bad.jsonl").string()};
    options.out = folder / "bad";
    parts.push_back("bad.jsonl:3: ");
    const auto error = user_error([&] { prepare(options); });
    INFO(error);
    CHECK(says(error, parts));
    CHECK(!std::filesystem::exists(folder / "bad"));
  };
  refused("{\"body\": \"open", {"malformed JSON", "\"body\" (--field)"});
  refused("{\"body\": \"\xFF\"}", {"malformed JSON"});
  refused("{\"body\": 5}", {"number", "string"});
  refused("{\"text\": \"x\"}", {"without that field"});
  refused("[1]", {"array"});
  CHECK(entries(folder.path()) == 5);
}

TEST_CASE("prepare refuses what it should and leaves nothing behind") {
  const TemporaryFolder folder;
  write_file(folder / "t.txt", "text");
  write_file(folder / "none.txt", "");
  const auto refused = [&](const PrepareOptions& options) { return user_error([&] { prepare(options); }); };
  CHECK(says(refused(prepare_options(folder / "gone.txt", folder / "o")), {"gone.txt", "no such file"}));
  CHECK(says(refused(prepare_options(folder / "none.txt", folder / "o")), {"none.txt", "no text"}));
  CHECK(says(refused(prepare_options(folder / "t.txt", folder / "t.txt")), {"t.txt", "in the way"}));
  CHECK(says(refused(prepare_options(folder / "t.txt", "")), {"--out"}));
  auto options = prepare_options(folder / "t.txt", folder / "o");
  options.inputs.clear();
  CHECK(says(refused(options), {"--input"}));
  options = prepare_options(folder / "t.txt", folder / "o");
  options.tokenizer = "gone.model";
  CHECK(says(refused(options), {"gone.model"}));
  options.tokenizer = "byte";
  options.stop = [] { return true; };
  CHECK(says(refused(options), {"interrupted"}));
  CHECK(entries(folder.path()) == 2);

  const auto child = in_child([&] {
    ignore_file_signals();
    limit_file_size(100000);
    write_file(folder / "t.txt", "");  // keeps its name
    for (int i = 0; i < 9; ++i) write_file(folder / ("part" + std::to_string(i)), std::string(90000, 'x'));
    auto full = prepare_options(folder.path(), folder / "o");
    const auto error = refused(full);
    std::puts(error.c_str());
    return error.empty() ? 1 : 0;
  });
  INFO(child.output);
  CHECK(child.exit_code == 0);
  CHECK(child.output.find("shard-000000.ngt") != std::string::npos);
  CHECK(!std::filesystem::exists(folder / "o"));
  CHECK(entries(folder.path()) == 2 + 9);
}

TEST_CASE("prepare replaces only folders of its own, and only when told") {
  const TemporaryFolder folder;
  write_file(folder / "one.txt", "1");
  write_file(folder / "two.txt", "2");
  prepare(prepare_options(folder / "one.txt", folder / "out"));
  auto options = prepare_options(folder / "two.txt", folder / "out");
  CHECK(says(user_error([&] { prepare(options); }), {"out", "not empty", "--overwrite"}));
  CHECK(all_tokens(folder / "out").front() == 3 + '1');
  options.overwrite = true;
  prepare(options);
  CHECK(all_tokens(folder / "out").front() == 3 + '2');
  write_file(folder / "out/letter.txt", "dear");
  CHECK(says(user_error([&] { prepare(options); }), {"out", "letter.txt"}));
  CHECK(file_text(folder / "out/letter.txt") == "dear");
  // Through a link the folder behind it is replaced; an empty folder is taken as it is.
  std::filesystem::create_directory(folder / "real");
  std::filesystem::create_directory_symlink(folder / "real", folder / "link");
  options.out = folder / "link";
  options.overwrite = false;
  prepare(options);
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(all_tokens(folder / "real").front() == 3 + '2');
  CHECK(entries(folder.path()) == 5);
}

TEST_CASE("prepare turns 50 MB of standard input into shards in constant memory") {
  const TemporaryFolder folder;
  const std::string block = made_up_text(1 << 20);
  const auto child = in_child([&] {
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    ::dup2(ends[0], STDIN_FILENO);
    ::close(ends[0]);
    rusage before{};
    ::getrusage(RUSAGE_SELF, &before);
    std::jthread writer([&] {
      for (int i = 0; i < 50; ++i) write_all(ends[1], block.data(), block.size(), "pipe");
      ::close(ends[1]);
    });
    int calls = 0;
    auto options = prepare_options("-", folder / "out");
    options.shard_tokens = 20'000'000;
    options.on_progress = [&](const PrepareCounts&) { ++calls; };
    const auto counts = prepare(options);
    rusage after{};
    ::getrusage(RUSAGE_SELF, &after);
    const auto grown = (after.ru_maxrss - before.ru_maxrss) / 1024;
    std::printf("%ld MiB more, %d calls\n", grown, calls);
    const auto bytes = static_cast<int64_t>(50 * block.size());
    if (counts.bytes != bytes || counts.tokens != bytes + 1 || counts.shards != 3) return 2;
    const auto workers = std::max(1L, static_cast<long>(std::thread::hardware_concurrency()));
    return grown < 24 + 8 * workers && calls > 3 ? 0 : 3;
  });
  INFO(child.output);
  REQUIRE(child.exit_code == 0);
  const auto dataset = Dataset::open(folder / "out");
  std::vector<int32_t> ids(block.size());
  dataset->read(static_cast<int64_t>(37 * block.size()), std::ssize(ids), ids.data());
  CHECK(ByteTokenizer().decode(ids) == block);
}

TEST_CASE("a signal ends a prepare that waits for its input") {
  const TemporaryFolder folder;
  const auto child = in_child([&] {
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    ::dup2(ends[0], STDIN_FILENO);
    static volatile sig_atomic_t stopped = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { stopped = 1; };
    ::sigaction(SIGALRM, &action, nullptr);
    ::alarm(1);
    auto options = prepare_options("-", folder / "out");
    options.stop = [] { return stopped != 0; };
    const auto error = user_error([&] { prepare(options); });
    std::puts(error.c_str());
    return error.find("interrupted") == std::string::npos ? 2 : 0;
  });
  INFO(child.output);
  CHECK(child.exit_code == 0);
  CHECK(entries(folder.path()) == 0);
}
