#include "lib/ops/choices.h"

#include "lib/base/error.h"

namespace narrowgauge::ops {
namespace {

template <class Table>
std::optional<nlohmann::json> look_in(const Table& table, const std::string& key) {
  const auto found = table.find(key);
  if (found == table.end()) return std::nullopt;
  return found->second;
}

template <class Table>
void add_members(Table& table, const nlohmann::json& values) {
  if (!values.is_object()) throw UserError("kernel choices must be one JSON object");
  for (const auto& [key, value] : values.items()) table[key] = value;
}

}  // namespace

std::optional<nlohmann::json> Choices::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return look_in(in_force_, key);
}

std::optional<nlohmann::json> Choices::remembered(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return look_in(remembered_, key);
}

void Choices::store(const std::string& key, nlohmann::json value) {
  const std::lock_guard lock(mutex_);
  in_force_[key] = std::move(value);
  stored_.insert(key);
  ++version_;
}

void Choices::clear() {
  const std::lock_guard lock(mutex_);
  in_force_.clear();
  remembered_.clear();
  stored_.clear();
  ++version_;
}

nlohmann::json Choices::news() const {
  const std::lock_guard lock(mutex_);
  nlohmann::json values = nlohmann::json::object();
  for (const std::string& key : stored_) {
    const nlohmann::json& value = in_force_.at(key);
    if (look_in(remembered_, key) != std::optional(value)) values[key] = value;
  }
  return values;
}

nlohmann::json Choices::to_json() const {
  const std::lock_guard lock(mutex_);
  nlohmann::json values = nlohmann::json::object();
  for (const auto& [key, value] : in_force_) values[key] = value;
  return values;
}

void Choices::load_json(const nlohmann::json& values) {
  const std::lock_guard lock(mutex_);
  add_members(in_force_, values);
  ++version_;
}

void Choices::remember_json(const nlohmann::json& values) {
  const std::lock_guard lock(mutex_);
  add_members(remembered_, values);
}

Choices& choices() {
  static Choices table;
  return table;
}

}  // namespace narrowgauge::ops
