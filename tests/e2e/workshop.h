#pragma once
#include <filesystem>
#include <string>

#include "tests/base/temporary_folder.h"
#include "tests/e2e/program.h"

namespace narrowgauge::test {

// A folder with a prepared byte corpus and a config of a tiny model: 8 sequences of 32 tokens a step.
class Workshop {
 public:
  Workshop();

  [[nodiscard]] std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string text(const std::string& name) const { return path(name).string(); }
  [[nodiscard]] std::string config() const { return text("tiny.yaml"); }

  // "train CONFIG --run NAME" with settings "a.b=c", then `more` words.
  [[nodiscard]] Words train(const std::string& run, const Words& settings, const Words& more = {}) const;

 private:
  TemporaryFolder folder_;
};

// Made once per test program.
const Workshop& workshop();

}  // namespace narrowgauge::test
