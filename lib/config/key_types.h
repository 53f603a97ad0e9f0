#pragma once
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lib/config/schema.h"

namespace narrowgauge {

// Allowed values of a numeric key; `above` and `below` exclude the end itself.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;
  bool below = false;

  [[nodiscard]] bool holds(double value) const;
  [[nodiscard]] std::string rule() const;  // "1 or more", "above 0, up to 1", ...
};

constexpr Range at_least(double least) { return {.least = least}; }
constexpr Range above(double least) { return {.least = least, .above = true}; }
constexpr Range between(double least, double most) { return {.least = least, .most = most}; }

// One kind of key each; `at` gives the member inside a config. Section, name, unit and help are filled in by
// SectionRows. An `automatic` key may also be the word "auto", which is stored as 0.
template <typename T>
using ConfigMember = std::function<T&(Config&)>;
ConfigKey integer_key(const ConfigMember<int64_t>& at, Range range, bool automatic);
ConfigKey bytes_key(const ConfigMember<int64_t>& at, bool automatic);
ConfigKey number_key(const ConfigMember<double>& at, Range range);
ConfigKey boolean_key(const ConfigMember<bool>& at);
ConfigKey text_key(const ConfigMember<std::string>& at);
ConfigKey choice_key(const ConfigMember<std::string>& at, const std::vector<std::string>& choices);

// `"abc"`, "a list", "a section" or "nothing": a value in a message.
std::string describe(const ConfigValue& value);

// Fills a section with one row a key.
template <typename Component>
class SectionRows {
 public:
  SectionRows(const char* name, const char* help, Component Config::*component)
      : section_{name, help, {}}, component_(component) {}

  void integer(const char* name, int64_t Component::*member, Range range, const char* unit,
               const char* help) {
    add(name, unit, help, integer_key(access(member), range, false));
  }
  void automatic_integer(const char* name, int64_t Component::*member, Range range, const char* unit,
                         const char* help) {
    add(name, unit, help, integer_key(access(member), range, true));
  }
  void automatic_bytes(const char* name, int64_t Component::*member, const char* help) {
    add(name, "bytes", help, bytes_key(access(member), true));
  }
  void bytes(const char* name, int64_t Component::*member, const char* help) {
    add(name, "bytes", help, bytes_key(access(member), false));
  }
  void number(const char* name, double Component::*member, Range range, const char* unit, const char* help) {
    add(name, unit, help, number_key(access(member), range));
  }
  void boolean(const char* name, bool Component::*member, const char* help) {
    add(name, "", help, boolean_key(access(member)));
  }
  void text(const char* name, std::string Component::*member, const char* help) {
    add(name, "", help, text_key(access(member)));
  }
  void choice(const char* name, std::string Component::*member, const std::vector<std::string>& choices,
              const char* help) {
    add(name, "", help, choice_key(access(member), choices));
  }
  void add(const char* name, const char* unit, const char* help, ConfigKey key) {
    key.section = section_.name;
    key.name = name;
    key.unit = unit;
    key.help = help;
    section_.keys.push_back(std::move(key));
  }

  ConfigSection take() { return std::move(section_); }

 private:
  template <typename T>
  ConfigMember<T> access(T Component::*member) const {
    return [component = component_, member](Config& config) -> T& { return (config.*component).*member; };
  }

  ConfigSection section_;
  Component Config::*component_;
};

}  // namespace narrowgauge
