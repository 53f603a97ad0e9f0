// Choices of kernels: the table, its file, the cache on disk, and the library that they are for.
#include "lib/ops/choices.h"

#include <cstdlib>
#include <fstream>
#include <set>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/ops/choice_file.h"
#include "tests/base/temporary_folder.h"
#include "tests/support/catch.h"
#if NARROWGAUGE_CUDA
#include "lib/ops/gemm_problem.h"
#endif

namespace narrowgauge::test {
namespace {

using nlohmann::json;
using ops::ChoicePlace;
using ops::Choices;

const ChoicePlace kPlace{.gpu = "NVIDIA GeForce RTX 5080",
                         .uuid = "00ff",
                         .capability = "12.0",
                         .driver = "13.0",
                         .cublaslt = "130100",
                         .cudnn = "91900"};
const json kSome{{"gemm a", {{"us", 1.5}}}, {"attention b", "flash"}};

TEST_CASE("choices in force are found, stored and written as JSON") {
  Choices table;
  CHECK_FALSE(table.find("gemm a"));
  table.remember_json(kSome);
  CHECK_FALSE(table.find("gemm a"));
  CHECK(table.remembered("attention b") == json("flash"));
  CHECK(table.to_json() == json::object());
  const uint64_t before = table.version();
  table.store("gemm a", 7);
  CHECK(table.version() != before);
  CHECK(table.find("gemm a") == json(7));
  CHECK(table.news() == json{{"gemm a", 7}});
  table.store("attention b", "flash");  // as remembered
  CHECK(table.news() == json{{"gemm a", 7}});
  table.load_json(kSome);
  CHECK(table.to_json() == kSome);
  CHECK(table.news().empty());
  Choices other;
  other.load_json(json::parse(table.to_json().dump()));
  CHECK(other.to_json() == kSome);
  CHECK_THROWS_AS(other.load_json(json::array()), UserError);
  table.clear();
  CHECK_FALSE(table.find("gemm a"));
  CHECK_FALSE(table.remembered("gemm a"));
}

TEST_CASE("a file of choices comes back, and a malformed one is refused") {
  const std::string text = ops::format_choices({{.place = kPlace, .choices = kSome}});
  const auto back = ops::parse_choices(text, "choices.json");
  REQUIRE(back.size() == 1);
  CHECK(back[0].place == kPlace);
  CHECK(back[0].choices == kSome);
  for (const char* bad : {"", "{", "[]", "{}", R"({"format": 2, "places": []})", R"({"format": 1})",
                          R"({"format": 1, "places": [{}]})", R"({"format": 1, "places": 3})",
                          R"({"format": 1, "places": [{"place": {}, "choices": {}}]})"}) {
    INFO(bad);
    CHECK_THROWS_AS(ops::parse_choices(bad, "choices.json"), UserError);
  }
  json root = json::parse(text);
  root["places"][0]["choices"] = "none";
  CHECK_THROWS_AS(ops::parse_choices(root.dump(), "choices.json"), UserError);
}

TEST_CASE("choices serve the same model of card with the same libraries") {
  ChoicePlace other = kPlace;
  other.uuid = "11";
  other.driver = "13.1";
  CHECK(kPlace.serves(other));
  for (std::string ChoicePlace::*const member :
       {&ChoicePlace::gpu, &ChoicePlace::capability, &ChoicePlace::cublaslt, &ChoicePlace::cudnn}) {
    other = kPlace;
    other.*member = "another";
    CHECK_FALSE(kPlace.serves(other));
  }
}

TEST_CASE("the cache holds choices by place, and a broken one does no harm") {
  const TemporaryFolder folder;
  const auto path = folder / "new/narrowgauge/choices.json";
  CHECK(ops::load_choice_cache(path, kPlace) == json::object());
  ops::save_choice_cache(path, kPlace, kSome);
  CHECK(ops::load_choice_cache(path, kPlace) == kSome);
  ChoicePlace other = kPlace;
  other.driver = "13.1";
  CHECK(ops::load_choice_cache(path, other) == json::object());
  ops::save_choice_cache(path, other, {{"gemm c", 3}});
  ops::save_choice_cache(path, kPlace, {{"gemm a", 4}});  // beside what is there
  CHECK(ops::load_choice_cache(path, other) == json{{"gemm c", 3}});
  CHECK(ops::load_choice_cache(path, kPlace) == json{{"gemm a", 4}, {"attention b", "flash"}});

  for (const std::string& damaged :
       {std::string("{\"format\": 1, \"pla"), std::string(64, '\0'), std::string()}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    CHECK(ops::load_choice_cache(path, kPlace) == json::object());
  }
  ops::save_choice_cache(path, kPlace, kSome);
  CHECK(ops::load_choice_cache(path, kPlace) == kSome);

  ops::save_choice_cache(path / "file-in-the-way" / "choices.json", kPlace, kSome);
  ops::save_choice_cache("", kPlace, kSome);
  CHECK(ops::load_choice_cache("", kPlace) == json::object());
  CHECK(ops::load_choice_cache(folder.path(), kPlace) == json::object());
}

TEST_CASE("the cache lies where the user's caches do") {
  const auto with = [](const char* cache, const char* home) {
    const auto set = [](const char* name, const char* value) {
      if (value != nullptr) {
        ::setenv(name, value, 1);
      } else {
        ::unsetenv(name);
      }
    };
    set("XDG_CACHE_HOME", cache);
    set("HOME", home);
    return ops::choice_cache_path().string();
  };
  CHECK(with("/c", "/h") == "/c/narrowgauge/choices.json");
  CHECK(with(nullptr, "/h") == "/h/.cache/narrowgauge/choices.json");
  CHECK(with("relative", "/h") == "/h/.cache/narrowgauge/choices.json");
  CHECK(with(nullptr, nullptr).empty());
}

#if NARROWGAUGE_CUDA
TEST_CASE("the process has one cuBLASLt, that of LibTorch") {
  CHECK(ops::cublaslt().get_version() / 10000 == CUBLAS_VER_MAJOR);
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> copies;
  std::set<std::string> folders;
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::filesystem::path file = line.substr(slash);
    if (file.filename().string().starts_with("libcublasLt.so")) copies.insert(file.string());
    if (file.filename().string().starts_with("libcublas")) folders.insert(file.parent_path().string());
  }
  CHECK(copies.size() == 1);
  CHECK(folders.size() == 1);
}

TEST_CASE("an algorithm comes back from its choice, and nothing else does") {
  for (const json& bad : {json(3), json("ff"), json::object(), json{{"algorithm", 1}, {"workspace", true}},
                          json{{"algorithm", "ff"}, {"workspace", true}},
                          json{{"algorithm", std::string(128, 'x')}, {"workspace", true}},
                          json{{"algorithm", std::string(128, ' ')}, {"workspace", true}},
                          json{{"algorithm", std::string(128, '0')}},
                          json{{"algorithm", std::string(128, '0')}, {"workspace", 1}}}) {
    CHECK_FALSE(ops::algorithm_from_json(bad));
  }
  std::string digits;
  for (int i = 0; i < 8; ++i) digits += "00000000000000a" + std::to_string(i);
  const auto algorithm = ops::algorithm_from_json({{"algorithm", digits}, {"workspace", false}});
  REQUIRE(algorithm);
  CHECK(algorithm->code.data[0] == 0xa0);
  CHECK(algorithm->code.data[7] == 0xa7);
  CHECK_FALSE(algorithm->workspace);
}
#endif

}  // namespace
}  // namespace narrowgauge::test
