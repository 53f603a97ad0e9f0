#include "lib/ops/choice_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "lib/base/cache_file.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/log.h"

namespace narrowgauge::ops {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kChoiceFormat = 1;

// Both directions visit the same list of fields.
template <class Place, class Visitor>
void visit_place(Place& place, Visitor&& visit) {
  visit("gpu", place.gpu);
  visit("uuid", place.uuid);
  visit("capability", place.capability);
  visit("driver", place.driver);
  visit("cublaslt", place.cublaslt);
  visit("cudnn", place.cudnn);
}

// Throws json::exception for what is missing or of another type.
PlacedChoices parse_entry(const json& entry) {
  PlacedChoices placed;
  const json& place = entry.at("place");
  visit_place(placed.place,
              [&](const char* key, std::string& value) { value = place.at(key).get<std::string>(); });
  placed.choices = entry.at("choices").get<json::object_t>();
  return placed;
}

std::vector<PlacedChoices> read_choice_file(const fs::path& path) {
  if (!fs::exists(path)) return {};
  return parse_choices(read_file(path), path);
}

}  // namespace

bool ChoicePlace::serves(const ChoicePlace& other) const {
  return std::tie(gpu, capability, cublaslt, cudnn) ==
         std::tie(other.gpu, other.capability, other.cublaslt, other.cudnn);
}

std::string format_choices(const std::vector<PlacedChoices>& all) {
  json places = json::array();
  for (const PlacedChoices& placed : all) {
    json place = json::object();
    visit_place(placed.place, [&](const char* key, const std::string& value) { place[key] = value; });
    places.push_back({{"place", place}, {"choices", placed.choices}});
  }
  return json{{"format", kChoiceFormat}, {"places", places}}.dump(1) + "\n";
}

std::vector<PlacedChoices> parse_choices(const std::string& text, const fs::path& path) {
  try {
    const json root = json::parse(text);
    if (const auto format = root.at("format").get<int64_t>(); format != kChoiceFormat) {
      throw UserError(
          fmt::format("{} has format {}, this program reads {}", path.string(), format, kChoiceFormat));
    }
    std::vector<PlacedChoices> all;
    for (const json& entry : root.at("places")) all.push_back(parse_entry(entry));
    return all;
  } catch (const json::exception& error) {
    throw UserError(fmt::format("{} is damaged: {}", path.string(), error.what()));
  }
}

fs::path choice_cache_path() { return cache_file("choices.json"); }

json load_choice_cache(const fs::path& path, const ChoicePlace& place) {
  json choices = json::object();
  try {
    for (const PlacedChoices& placed : read_choice_file(path)) {
      if (placed.place == place) choices = placed.choices;
    }
  } catch (const std::exception& error) {
    log_warn(fmt::format("the cache of kernel choices is not used: {}", error.what()));
  }
  return choices;
}

void save_choice_cache(const fs::path& path, const ChoicePlace& place, const json& choices) {
  if (path.empty()) return;
  std::vector<PlacedChoices> all;
  try {
    all = read_choice_file(path);
  } catch (const std::exception&) {  // damaged: load_choice_cache has said so, and it is replaced
    all.clear();
  }
  auto mine = std::find_if(all.begin(), all.end(),
                           [&](const PlacedChoices& placed) { return placed.place == place; });
  if (mine == all.end()) mine = all.insert(all.end(), {.place = place, .choices = json::object()});
  mine->choices.update(choices);
  write_cache_file(path, format_choices(all));
}

}  // namespace narrowgauge::ops
