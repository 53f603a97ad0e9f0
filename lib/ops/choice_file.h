#pragma once
#include <c10/core/Device.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace narrowgauge::ops {

// What choices were made for.
struct ChoicePlace {
  std::string gpu;         // name
  std::string uuid;        // of this one card, 32 hexadecimal digits
  std::string capability;  // "9.0"
  std::string driver;      // newest CUDA version that it knows, "13.0"
  std::string cublaslt;    // version
  std::string cudnn;       // version
  bool operator==(const ChoicePlace&) const = default;

  // Choices of `other` are good here: a card of that model with those libraries, whatever driver and card.
  [[nodiscard]] bool serves(const ChoicePlace& other) const;
};

// Of a CUDA device; std::logic_error in a build without CUDA.
ChoicePlace choice_place(at::Device device);

struct PlacedChoices {
  ChoicePlace place;
  nlohmann::json choices;  // an object
};

// A file of choices, in the disk cache or in a checkpoint:
//   {"format": 1, "places": [{"place": {"gpu": ..., ...}, "choices": {key: value, ...}}, ...]}
std::string format_choices(const std::vector<PlacedChoices>& all);
// UserError that names `path` when it is malformed.
std::vector<PlacedChoices> parse_choices(const std::string& text, const std::filesystem::path& path);

// cache_file("choices.json").
std::filesystem::path choice_cache_path();
// What the cache has for exactly this place. A missing file or place gives no members; one that cannot be
// read, too, with a warning.
nlohmann::json load_choice_cache(const std::filesystem::path& path, const ChoicePlace& place);
// Adds the members of `choices` to the file's for this place and replaces the file whole. A failure is a
// warning.
void save_choice_cache(const std::filesystem::path& path, const ChoicePlace& place,
                       const nlohmann::json& choices);

}  // namespace narrowgauge::ops
