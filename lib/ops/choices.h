#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

namespace narrowgauge::ops {

// Which algorithm or kernel does a job where several can and timing decided: key -> JSON value. A key begins
// with the kind of job ("gemm", ...) and says all that the choice may depend on: shapes, layout, dtypes,
// never the call site. Choices in force are what products use and checkpoints keep. Remembered ones (of the
// disk cache) are candidates: who would otherwise time a key may take the remembered value and store it.
// Thread-safe.
class Choices {
 public:
  [[nodiscard]] std::optional<nlohmann::json> find(const std::string& key) const;  // in force
  [[nodiscard]] std::optional<nlohmann::json> remembered(const std::string& key) const;
  void store(const std::string& key, nlohmann::json value);  // into force
  void clear();                                              // both kinds

  // One object of what was stored (not loaded) since it was cleared and is not remembered with that value:
  // what the disk cache lacks.
  [[nodiscard]] nlohmann::json news() const;

  // One object of all choices in force.
  [[nodiscard]] nlohmann::json to_json() const;
  // Adds an object's members, replacing equal keys. UserError for anything but an object.
  void load_json(const nlohmann::json& values);      // into force
  void remember_json(const nlohmann::json& values);  // as remembered

  // Changes whenever a choice in force may have changed.
  [[nodiscard]] uint64_t version() const { return version_; }

 private:
  using Table = std::map<std::string, nlohmann::json>;

  mutable std::mutex mutex_;
  Table in_force_;
  Table remembered_;
  std::set<std::string> stored_;
  std::atomic<uint64_t> version_ = 0;
};

// The process's own.
Choices& choices();

}  // namespace narrowgauge::ops
