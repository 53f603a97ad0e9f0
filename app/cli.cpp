// The only source that includes cxxopts.
#include "app/cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

// A repeated option's value is one value, commas and all.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include <cxxopts.hpp>

#include "app/output.h"
#include "lib/base/error.h"
#include "lib/base/text.h"

namespace narrowgauge::app {
namespace {

enum class Kind { positional, option, repeated, flag };

struct Declared {
  Kind kind;
  std::string name;
  std::string value;  // placeholder
  std::string help;
  std::string fallback;
  bool required;

  [[nodiscard]] std::string left_column() const {
    if (kind == Kind::positional) return name;
    return value.empty() ? "--" + name : fmt::format("--{} {}", name, value);
  }
};

template <typename T>
bool parse_whole(const std::string& text, T& out) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && rest == end && !text.empty();
}

}  // namespace

struct Cli::Spec {
  std::string command;
  std::string usage;
  std::string summary;
  std::vector<Declared> declared;

  [[nodiscard]] std::string help() const {
    std::string text = fmt::format("usage: narrowgauge {} {}\n\n{}\n\n", command, usage, summary);
    size_t width = std::string("--help").size();
    for (const Declared& d : declared) width = std::max(width, d.left_column().size());
    for (const Declared& d : declared) {
      text += fmt::format("  {:<{}}  {}", d.left_column(), width, d.help);
      if (d.required) text += " (required)";
      if (!d.fallback.empty()) text += fmt::format(" (default: {})", d.fallback);
      if (d.kind == Kind::repeated) text += " (may be repeated)";
      text += '\n';
    }
    return text + fmt::format("  {:<{}}  print this text\n", "--help", width);
  }

  [[nodiscard]] cxxopts::Options options() const {
    cxxopts::Options options(command);
    options.allow_unrecognised_options();
    options.add_options()("h,help", "");
    std::vector<std::string> positional;
    for (const Declared& d : declared) {
      if (d.kind == Kind::flag) {
        options.add_options()(d.name, "");
      } else if (d.kind == Kind::positional) {  // a vector here would take every word
        options.add_options()(d.name, "", cxxopts::value<std::string>());
        positional.push_back(d.name);
      } else {
        options.add_options()(d.name, "", cxxopts::value<std::vector<std::string>>());
      }
    }
    options.parse_positional(positional);
    return options;
  }

  // Words that nothing was declared for.
  void refuse(const std::vector<std::string>& words) const {
    if (words.empty()) return;
    std::vector<std::string> names{"--help"};
    for (const Declared& d : declared) {
      if (d.kind != Kind::positional) names.push_back("--" + d.name);
    }
    for (const std::string& word : words) {
      if (!word.starts_with('-')) continue;
      const std::string name = word.substr(0, word.find('='));
      fail(fmt::format("unknown option {}{}", name, did_you_mean(name, names)));
    }
    fail(fmt::format("unexpected word \"{}\"", words[0]));
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw UserError(fmt::format("{}: {}; see narrowgauge {} --help", command, problem, command));
  }
};

Cli::Cli(std::string command, std::string usage, std::string summary)
    : spec_(std::make_unique<Spec>(Spec{std::move(command), std::move(usage), std::move(summary), {}})) {}
Cli::~Cli() = default;

void Cli::positional(const std::string& name, const std::string& help, bool required) {
  spec_->declared.push_back({Kind::positional, name, "", help, "", required});
}

void Cli::option(const std::string& name, const std::string& value, const std::string& help,
                 const std::string& default_value) {
  spec_->declared.push_back({Kind::option, name, value, help, default_value, false});
}

void Cli::required_option(const std::string& name, const std::string& value, const std::string& help) {
  spec_->declared.push_back({Kind::option, name, value, help, "", true});
}

void Cli::repeated(const std::string& name, const std::string& value, const std::string& help) {
  spec_->declared.push_back({Kind::repeated, name, value, help, "", false});
}

void Cli::flag(const std::string& name, const std::string& help) {
  spec_->declared.push_back({Kind::flag, name, "", help, "", false});
}

std::optional<Arguments> Cli::parse(int argc, char** argv) const {
  Arguments arguments;
  try {
    const cxxopts::ParseResult result = spec_->options().parse(argc, argv);
    if (result.count("help") > 0) {
      print(spec_->help());
      return std::nullopt;
    }
    spec_->refuse(result.unmatched());
    for (const Declared& d : spec_->declared) {
      Arguments::Value& value = arguments.values_[d.name];
      value.given = result.count(d.name) > 0;
      if (value.given && d.kind == Kind::positional) {
        value.texts = {result[d.name].as<std::string>()};
      } else if (value.given && d.kind != Kind::flag) {
        value.texts = result[d.name].as<std::vector<std::string>>();
      } else if (!value.given && !d.fallback.empty()) {
        value.texts = {d.fallback};
      }
      if (d.required && !value.given) spec_->fail(fmt::format("{} is missing", d.left_column()));
    }
  } catch (const cxxopts::exceptions::exception& error) {
    spec_->fail(error.what());
  }
  return arguments;
}

const Arguments::Value& Arguments::value(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw std::logic_error("undeclared option " + name);
  return found->second;
}

bool Arguments::given(const std::string& name) const { return value(name).given; }
bool Arguments::flag(const std::string& name) const { return value(name).given; }
std::vector<std::string> Arguments::list(const std::string& name) const { return value(name).texts; }

std::string Arguments::text(const std::string& name) const {
  const Value& found = value(name);
  return found.texts.empty() ? "" : found.texts.back();
}

int64_t Arguments::integer(const std::string& name, int64_t least, int64_t most) const {
  int64_t number = 0;
  if (!parse_whole(text(name), number) || number < least || number > most) {
    const std::string rule =
        most == INT64_MAX ? fmt::format("of at least {}", least) : fmt::format("from {} to {}", least, most);
    throw UserError(fmt::format("--{}: \"{}\" is not allowed: give an integer {}", name, text(name), rule));
  }
  return number;
}

double Arguments::number(const std::string& name, double least, double most) const {
  double number = 0;
  if (!parse_whole(text(name), number) || !std::isfinite(number) || number < least || number > most) {
    const std::string rule = std::isfinite(most) ? fmt::format("from {} to {}", least, most)
                                                 : fmt::format("of at least {}", least);
    throw UserError(fmt::format("--{}: \"{}\" is not allowed: give a number {}", name, text(name), rule));
  }
  return number;
}

}  // namespace narrowgauge::app
