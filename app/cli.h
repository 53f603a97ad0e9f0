#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace narrowgauge::app {

// The parsed command line. Every name was declared with Cli; asking for another one is a bug
// (std::logic_error).
class Arguments {
 public:
  // Given on the command line, as opposed to left at its default.
  [[nodiscard]] bool given(const std::string& name) const;
  [[nodiscard]] bool flag(const std::string& name) const;
  // The value, else the default, else "".
  [[nodiscard]] std::string text(const std::string& name) const;
  // The value of an option as a number. UserError that names the option, the text and the rule when it is
  // none, or when it lies outside [least, most].
  [[nodiscard]] int64_t integer(const std::string& name, int64_t least = 0, int64_t most = INT64_MAX) const;
  [[nodiscard]] double number(const std::string& name, double least, double most) const;
  // Every value of a repeated option, in order.
  [[nodiscard]] std::vector<std::string> list(const std::string& name) const;

 private:
  friend class Cli;
  struct Value {
    bool given = false;
    std::vector<std::string> texts;  // the default when not given
  };
  [[nodiscard]] const Value& value(const std::string& name) const;
  std::map<std::string, Value> values_;
};

// What a subcommand accepts. --help is always there.
class Cli {
 public:
  // `usage` follows the command's name in the help ("CONFIG --run DIR [options]").
  Cli(std::string command, std::string usage, std::string summary);
  ~Cli();
  Cli(const Cli&) = delete;
  Cli& operator=(const Cli&) = delete;

  // Positional words in the order of the calls. A missing required one is a UserError.
  void positional(const std::string& name, const std::string& help, bool required = true);
  // --name VALUE. A required one must be given.
  void option(const std::string& name, const std::string& value, const std::string& help,
              const std::string& default_value = "");
  void required_option(const std::string& name, const std::string& value, const std::string& help);
  // --name VALUE, as often as wanted.
  void repeated(const std::string& name, const std::string& value, const std::string& help);
  // --name.
  void flag(const std::string& name, const std::string& help);

  // Nothing when --help was asked for and printed on stdout. UserError for an unknown option (with the
  // nearest known one), a missing value, a missing required argument or a word too many.
  std::optional<Arguments> parse(int argc, char** argv) const;

 private:
  struct Spec;
  std::unique_ptr<Spec> spec_;
};

}  // namespace narrowgauge::app
