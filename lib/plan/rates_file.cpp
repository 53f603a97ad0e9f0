#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "lib/plan/rates.h"

namespace narrowgauge::plan {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;

json parse(const std::string& text) {
  json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || root.value("format", json()) != kFormat || !root["cards"].is_array()) {
    return {{"format", kFormat}, {"cards", json::array()}};
  }
  return root;
}

bool is_of(const json& card, const RatesKey& key) {
  return card.is_object() && card.value("uuid", json()) == key.uuid &&
         card.value("driver", json()) == key.driver && card.value("version", json()) == key.version &&
         card.value("kernels", json()) == key.kernels;
}

std::optional<Measurement> read_point(const json& point) {
  try {
    Measurement read;
    const auto name = point.at("work").get<std::string>();
    int work = 0;
    while (work < kWorks && name != work_name(static_cast<Work>(work))) ++work;
    if (work == kWorks) return std::nullopt;
    read.probe.work = static_cast<Work>(work);
    read.probe.rows = point.at("rows").get<int64_t>();
    read.probe.shape = point.at("shape").get<std::array<int64_t, 4>>();
    read.seconds = point.at("seconds").get<double>();
    if (read.probe.rows <= 0 || !(read.seconds > 0)) return std::nullopt;
    return read;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<Measurement> find_rates(const std::string& file, const RatesKey& key) {
  std::vector<Measurement> points;
  const json root = parse(file);
  for (const json& card : root["cards"]) {
    if (!is_of(card, key) || !card.contains("points") || !card["points"].is_array()) continue;
    for (const json& point : card["points"]) {
      if (const auto read = read_point(point)) points.push_back(*read);
    }
  }
  return points;
}

std::string store_rates(const std::string& file, const RatesKey& key,
                        const std::vector<Measurement>& points) {
  std::vector<Measurement> all = points;
  for (const Measurement& before : find_rates(file, key)) {
    const auto same = [&](const Measurement& point) { return point.probe == before.probe; };
    if (std::none_of(points.begin(), points.end(), same)) all.push_back(before);
  }
  std::sort(all.begin(), all.end(),
            [](const Measurement& a, const Measurement& b) { return a.probe < b.probe; });
  json card{{"uuid", key.uuid},
            {"driver", key.driver},
            {"version", key.version},
            {"kernels", key.kernels},
            {"points", json::array()}};
  for (const Measurement& point : all) {
    card["points"].push_back({{"work", work_name(point.probe.work)},
                              {"rows", point.probe.rows},
                              {"shape", point.probe.shape},
                              {"seconds", point.seconds}});
  }
  json root = parse(file);
  json cards = json::array();
  for (json& other : root["cards"]) {
    if (!is_of(other, key)) cards.push_back(std::move(other));
  }
  cards.push_back(std::move(card));
  root["cards"] = std::move(cards);
  return root.dump(1) + "\n";
}

}  // namespace narrowgauge::plan
